"""One node: its parts, and how they start and stop.

They start in this order: sockets (a port in use fails before any work), directory (locked), library (built versions
opened, source scanned once), store of the tables, gossip, gateway, serving loops. `ready` is reported after all of
them, so every built version is served by then. A known node whose disk refuses writes starts *silent*: it serves the
active versions, builds and switches nothing, and retries. Others do not hear of it, since its epoch is not kept.

At SIGTERM or SIGINT others are told that the node is about to leave. It serves on while they build the active data
that only this node has (`DatabaseView.is_missed`), for `drain_timeout` at most. Then it leaves, refuses new requests,
answers open ones within `drain_timeout` (HTTP first, as the gateway asks this node), and closes store, library and
directory. A second signal ends it at once. SIGHUP reads databases' settings, keys, certificate, users and source
again. Everything runs in one nursery: a defect in any part ends the whole node.
"""

from __future__ import annotations

import contextlib
import platform
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv import __version__
from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatasetCluster
from gossipkv.dataset.cluster.members import LIVE
from gossipkv.dataset.coalesced import Coalesced
from gossipkv.dataset.library import Library, LibraryPorts
from gossipkv.environment.cores import cores
from gossipkv.errors import ConfigError, LocalError, StorageError
from gossipkv.log import Log
from gossipkv.node import certificate
from gossipkv.node.access import Access, access_of
from gossipkv.node.backups import NodeData, backup_methods
from gossipkv.node.binding import Listeners, advertised, bind, bound_to, listening_beside
from gossipkv.node.cluster_methods import ClusterMethods
from gossipkv.node.data_methods import DataMethods
from gossipkv.node.directory import DataDirectory, kept_ring
from gossipkv.node.forgotten import TABLES
from gossipkv.node.gateway import GatewayProcess, types_of
from gossipkv.node.gossip import Gossiping, check_room, membership_of, read_key_ring, refuse_strangers
from gossipkv.node.info import Info, Measures, NodeInfo
from gossipkv.node.methods import Handlers
from gossipkv.node.names import Names
from gossipkv.node.peers.connections import NodePeers, PeerEvents
from gossipkv.node.peers.dialling import Proofs
from gossipkv.node.peers.greeting import Greeter
from gossipkv.node.readiness import TABLES_LOOK_S, TABLES_S, NodeReadiness
from gossipkv.node.report_methods import ReportMethods
from gossipkv.node.sharing import DATABASES, Sharing, terms_of
from gossipkv.node.users_file import UsersFile
from gossipkv.node.verdicts import NodeVerdicts, VerdictReport
from gossipkv.processes.supervisor import NOBODY, ProcessSupervisor
from gossipkv.processes.usage import usage
from gossipkv.serving.loop import Sockets
from gossipkv.serving.published import publish
from gossipkv.serving.pumps import Pumps, polls
from gossipkv.serving.reads import Reads
from gossipkv.serving.resp import RespCommands
from gossipkv.serving.scan_elsewhere import Elsewhere
from gossipkv.storage import sigbus
from gossipkv.table.participant.participant import MetadataParticipant
from gossipkv.table.rpc.dispatch import TableMethods
from gossipkv.table.rpc.local_calls import value_of
from gossipkv.table.store import OPEN, TableStore, memory_bytes, open_tables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from gossipkv.access.users import Users
    from gossipkv.dataset.cluster.core import DatabaseCore
    from gossipkv.dataset.cluster.effects import Outward
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.library import ChildProcesses
    from gossipkv.environment.seam import Environment
    from gossipkv.serving.loop import Tls
    from gossipkv.serving.pump import MakeTransport
    from gossipkv.settings.config import Config
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.table.ports import OpenStores

MACHINES = ("x86_64", "aarch64")

MEND_PERIOD_S = 5.0  # Time between two attempts of a silent node to write; a refused one costs little.

# The gateway's share of the time to drain, before the serving loops drain; mostly it needs some milliseconds.
GATEWAY_PART = 0.5

HAND_OVER_LOOK_S = 0.02  # Period at which a node that is about to leave checks whether others still lack its data.

NAMED = 3  # Databases not yet served that the status line names.


def check_platform(system: str = sys.platform, machine: str | None = None) -> None:
    """Refuse to start on a platform without the serving loop.

    Raises:
        LocalError: not Linux on x86-64 or aarch64.
    """
    machine = platform.machine() if machine is None else machine
    if not system.startswith("linux") or machine not in MACHINES:
        words = f"a node needs Linux on x86-64 or aarch64, not {system} on {machine}; clients run on any system"
        raise LocalError(words, {"system": system, "machine": machine})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeams:
    """The access of a node to the world beside its environment; a simulation passes its own."""

    make_transport: MakeTransport = Sockets  # Serves the listeners of the environment's sockets.
    children: ChildProcesses | None = None
    open_store: OpenStores | None = None  # None: by the settings.
    usage: Callable[[], Mapping[str, float]] = usage
    fast_path: bool = True  # False: Python answers all requests of tables.


REAL: Final = NodeSeams()


async def run(
    config: Config,
    environment: Environment,
    *,
    forget_tables: bool = False,
    reload: Callable[[], Mapping[str, DatabaseSettings]] | None = None,
    seams: NodeSeams = REAL,
    supervisor: ProcessSupervisor = NOBODY,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a node until a signal ends it; reports its address when it is ready.

    With `forget_tables` it becomes another node, without its tables. At SIGHUP `reload` runs in a worker thread and
    returns the databases' new settings; `supervisor` is told the node's state.

    Raises:
        LocalError: this machine's set-up stands in the way: platform, port, data directory.
        ConfigError: settings contradict each other.
        Corrupt: the data directory's own documents are damaged.
    """
    check_platform()
    check_room(config)
    sigbus.install()
    with contextlib.ExitStack() as stack:
        listener, datagrams = bind(environment, config.listen)
        stack.callback(listener.close)
        stack.callback(datagrams.close)
        resp, http = stack.enter_context(listening_beside(environment, config))
        refuse_strangers(config, bound := bound_to(listener))
        sealing = await environment.threads.run(read_key_ring, config, environment)
        access = await environment.threads.run(access_of, config)
        tls = await environment.threads.run(certificate.read, config)
        open_directory = partial(_open_directory, config, environment, tls, forget_tables=forget_tables)
        directory = stack.enter_context(await environment.threads.run(open_directory))
        address, name = await advertised(environment.sockets, bound, config)
        gossiping = Gossiping(config, environment, directory, datagrams=datagrams, address=address, sealing=sealing)
        gossiping.publish_name(name)
        membership = membership_of(config, gossiping, await environment.threads.run(directory.peers))
        ring = await environment.threads.run(kept_ring, directory)
        ground = _Ground(directory, gossiping, access, tls, membership, ring)
        node = _NodeParts(config, environment, seams, ground, Listeners(listener, resp, http), reload=reload)
        stack.callback(node.close)
        # A signal during the first scan ends the node as well.
        with environment.signals.receive(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.obey, signals, nursery)
                await nursery.start(node.serve, supervisor, nursery)
                await node.open_all()
                node.log.info("ready", address=str(bound), node=directory.record.node, cluster=config.cluster)
                task_status.started(bound)
                node.tell_ready(nursery)
        node.log.info("stopped", node=directory.record.node)


def _open_directory(config: Config, environment: Environment, tls: Tls | None, *, forget_tables: bool) -> DataDirectory:
    return DataDirectory.open(
        config.data,
        environment.files,
        cluster=config.cluster,
        random=environment.random,
        node=config.node,
        least_epoch=environment.clock.wall_ms(),
        forget_tables=forget_tables,
        uuid=None if tls is None or tls.uuid is None else tls.uuid.hex(),
    )


class _Ground(NamedTuple):
    """The parts that are read from files before the others are made."""

    directory: DataDirectory
    gossiping: Gossiping
    access: Access
    tls: Tls | None
    membership: Membership
    ring: Mapping[str, str]


@final
class _NodeParts:
    def __init__(
        self,
        config: Config,
        environment: Environment,
        seams: NodeSeams,
        ground: _Ground,
        listeners: Listeners,
        *,
        reload: Callable[[], Mapping[str, DatabaseSettings]] | None,
    ) -> None:
        directory, gossiping, access, tls, self._membership, self._ring = ground
        self.log, self._directory, self._gossiping, self._access = Log("gossipkv.node"), directory, gossiping, access
        self._config, self._environment, self._seams, self._listeners = config, environment, seams, listeners
        open_store = seams.open_store or open_tables(config)
        self._tables = TableStore(directory.path / TABLES, directory, environment, open_store)
        self._gateway = self._make_gateway()
        self._reload, self._reloads = reload, Coalesced(self._reconfigure)
        self._pumps = Pumps(
            config,
            config.pumps_for(cores()),
            seed=lambda: environment.random.getrandbits(62),
            node=directory.record.node,
            readable=access.bitmaps,
            wants_tokens=access.wants_tokens,
            user_named=access.named,
            is_dataset=lambda name: self._library.known(name),  # noqa: PLW0108  # The library is made later.
        )
        self._tables.loops = self._pumps if seams.fast_path else None
        self._certificate = certificate.Certificate(
            config, environment.clock, environment.threads, tls, self._pumps.use_tls, gossiping.dialling.use_tls
        )
        self._supervisor, self._has_left = NOBODY, False
        cluster = self._cluster()
        self._library = self._make_library(cluster)
        now_ms = int(trio.current_time() * 1000)
        self._readiness = NodeReadiness(self._library, cluster, settle_ms=config.time_to_converge, now_ms=now_ms)
        self._all_peers = self._make_peers()
        self._peers = self._all_peers[0]
        self._sharing = Sharing(
            gossiping,
            self._library,
            self._membership,
            self._peers,
            self._pumps,
            address=gossiping.address,
            ask_timeout_ms=gossiping.probe_interval_ms,
        )
        self._peers.watch(ended=self._sharing.lost)
        elsewhere = Elsewhere(
            self._sharing.sources,
            self._peers.ask,
            environment.random,
            on_not_served=self._look_around,
            whole_ms=config.proxy_timeout,
            stage_ms=config.stage_timeout,
            max_elements=config.max_elements,
            max_frame=config.max_frame,
        )
        self._reads = Reads(self._library, self._pumps.count, config, elsewhere, node=directory.record.node)
        self._participant = self._make_participant()
        self._participant.directory.has_settled = lambda: self._readiness.has_joined(int(trio.current_time() * 1000))
        self._table_methods = TableMethods(self._participant, environment.random, config)
        self._names = Names(self._library, self._table_methods, lambda: gossiping.names(DATABASES))
        self._users_file = UsersFile(config.users, environment, self._know_users, self._names.all)
        self._report = self._make_report()
        self._verdicts = NodeVerdicts(self._report, self._participant.peers.ask, environment.threads)
        parts = NodeData(self._participant, self._table_methods, self._library, self._names)
        self._backups = backup_methods(config, environment, directory, gossiping, parts)
        self._handlers = self._make_handlers(self._measures(elsewhere))

    def _make_gateway(self) -> GatewayProcess | None:
        own, _, http = self._listeners
        name, peer_of = self._directory.record.node, self._access.peer_of
        if http is None:
            return None
        return GatewayProcess(self._config, bound_to(http), node=bound_to(own), name=name, peer_of=peer_of)

    def _make_library(self, cluster: DatasetCluster) -> Library:
        config = self._config
        return Library(
            self._directory.store,
            config,
            self._environment,
            LibraryPorts(
                on_change=self._publish,
                requests=self._pumps.requests_of,
                is_table=lambda name: name in self._participant.table_names,
                reserve=lambda: memory_bytes(config) if self._tables.state == OPEN else 0,
            ),
            children=self._seams.children,
            may_write=False,  # Switched on once it is known which names tables have.
            cluster=cluster,
        )

    def _make_participant(self) -> MetadataParticipant:
        return MetadataParticipant(
            self._config,
            self._directory,
            self._gossiping,
            self._tables,
            peers=self._peers,
            environment=self._environment,
            knows_peers=self._access.knows_peers,
            on_names=self._library.names_changed,
        )

    def _make_report(self) -> VerdictReport:
        return VerdictReport(
            node=self._directory.record.node,
            has_source=self._config.source is not None,
            datasets=self._library,
            tables=self._table_methods,
            names=self._names,
            store=self._tables,
            cluster=self._gossiping,
            unreached=lambda: {**self._gossiping.unheard(), **self._peers.failures},
            unreadable=lambda: self._sharing.unreadable,
            draining=lambda: self._readiness.draining,
            certificate=lambda: self._certificate.expires_s,
            clock=self._environment.clock,
            to_readers=not self._access.has_users,
        )

    def _measures(self, elsewhere: Elsewhere) -> Measures:
        began_ns = (clock := self._environment.clock).monotonic_ns()
        http = dict if self._gateway is None else self._gateway.counters
        return Measures(
            counters=lambda: {**self._pumps.counters(), **elsewhere.counters(), **http()},
            unreadable=lambda: self._sharing.unreadable,
            reads=lambda: self._reads.counts.with_those_of(self._pumps.reads()),
            errors=lambda: self._handlers.errors,
            latency=self._pumps.latency,
            pumps=self._pumps.counters_by_loop,
            usage=self._seams.usage,
            ready=lambda: self._readiness.to_map(int(trio.current_time() * 1000)),
            uptime_s=lambda: (clock.monotonic_ns() - began_ns) / 1e9,
            records=self._table_methods.to_map,
            certificate=lambda: self._certificate.expires_s,
            directory=self._directory.to_map,
        )

    def _make_handlers(self, measures: Measures) -> Handlers:
        at = None if (resp := self._listeners.resp) is None else str(bound_to(resp))
        node, config, reads = self._directory.record.node, self._config, self._reads
        identity = NodeInfo(version=__version__, cluster=config.cluster, node=node, resp=at)
        gossiping, access, verdicts, random = self._gossiping, self._access, self._verdicts, self._environment.random
        library, tables, names, report = self._library, self._table_methods, self._names, self._report.make
        info = Info(library, self._tables, identity, gossiping, measures).to_map
        reports = ReportMethods(library, tables, names, gossiping, access, info=info, report=report, verdicts=verdicts)
        data = DataMethods(library, reads, tables, names, cluster=gossiping, verdicts=verdicts)
        proofs = Proofs(self._pumps.proven if config.tls_peers else None, gossiping.names_of)
        words, serves = self._participant.words, self._sharing.answer
        cluster = ClusterMethods(gossiping, words, access, serves=serves, prove=proofs.check)
        commands = RespCommands(
            config.resp_databases,
            names=names,
            records=reads.records,
            methods=data.methods,
            value_of=value_of,
            info=info,
            environment=self._environment,
            access=access,
        )
        methods = {**reports.methods, **data.methods, **cluster.methods, **self._backups.methods}
        of_callers = {
            b"auth": access.auth,
            b"cancel": self._pumps.cancel,
            b"hello": cluster.hello,
            b"status": reports.status,
            b"resp": commands.answer,
        }
        return Handlers(methods, of_callers, access, reads.unanswered, random, writer=tables.begin_writes)

    def _cluster(self) -> DatasetCluster:
        settle_ms, now_ms = self._config.time_to_converge, int(trio.current_time() * 1000)
        convergence = Convergence(
            self._membership,
            settle_ms=settle_ms,
            now_ms=now_ms,
            kept=self._ring,
            expected=self._config.expected_members,
        )
        return DatasetCluster(self._membership, convergence, terms_of(self._config), self._perform)

    def _make_peers(self) -> list[NodePeers]:
        """Make the connections of each serving loop; the first is told of members, and tells the others."""
        gossiping, random, peers = self._gossiping, self._environment.random, list[NodePeers]()
        greeter = Greeter(
            gossiping.dialling,
            random,
            mine=lambda: gossiping.hello,
            prover=gossiping.prover,
            words=lambda: self._participant.words,
        )
        events = PeerEvents(gossiping.suspect_hint, self._look_around, self._look_at)
        for number in reversed(range(len(self._pumps))):
            beside = () if number else peers
            peers = [NodePeers(greeter, random, self._pumps.ways(number), events, beside), *peers]
        return peers

    async def serve(
        self,
        supervisor: ProcessSupervisor,
        nursery: trio.Nursery,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start the parts, then serve until drained; end the nursery."""
        self._supervisor = supervisor
        if self._directory.silence is not None:
            self.log.error("silent", reason=self._directory.silence.message)
        if self._directory.forgotten is not None:
            self.log.warning("tables_forgotten", path=str(self._directory.forgotten))
        await nursery.start(self._library.run)
        await nursery.start(self._tables.run)
        self._publish()
        self._know_types(self._config.databases)
        polling = polls(self._config.busy_poll, pumps=len(self._pumps))
        self._pumps.open(self._seams.make_transport, *self._listeners, polls=polling)
        await nursery.start(self._certificate.run)
        # Other members can reach this node as soon as gossip runs; their requests wait until it serves.
        await nursery.start(self._gossiping.agent.run)
        await nursery.start(self._peers.run)
        await nursery.start(self._sharing.run)
        await nursery.start(self._participant.run)
        await nursery.start(self._backups.jobs.run)
        if self._directory.silence is None:
            self._library.resume()
        else:
            nursery.start_soon(self._mend)
        nursery.start_soon(self._users_file.run)
        if self._gateway is not None:
            nursery.start_soon(self._gateway.run, self._pumps.serve_gateway)
        await self._pumps.run(
            self._environment, self._handlers, self._all_peers, gateway=self._gateway, task_status=task_status
        )
        if self._gateway is not None:
            await self._gateway.ended()
        await self._participant.end()
        await self._tables.end()
        nursery.cancel_scope.cancel()

    async def open_all(self) -> None:
        """Log each database that is not served yet, and return once replicas answer or were waited for long enough."""
        for name in self._library.unserved():
            self.log.info("not_served_yet", database=name, reason=self._library.unready(name))
        with trio.move_on_after(TABLES_S):
            while not (self._participant.service.can_answer or self._readiness.draining):  # noqa: ASYNC110  # Nothing signals it.
                await trio.sleep(TABLES_LOOK_S)
        self._readiness.tables_opened = True

    def tell_ready(self, nursery: trio.Nursery) -> None:
        """Report to the supervisor that the node is ready, and from then on that it lives."""
        if self._readiness.draining:  # A signal came first, and the supervisor was told of it.
            return
        self._supervisor.ready(self._status())
        if self._supervisor.is_there:
            nursery.start_soon(self._tell_lives)

    async def obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        """Act on signals until they end."""
        stopping = False
        async for number in signals:
            if number == signal.SIGHUP:
                self.log.info("refresh", reason="SIGHUP")
                nursery.start_soon(self._look_again)
            elif not self._pumps.are_running or stopping:
                self.log.warning("cut", reason=signal.Signals(number).name)
                nursery.cancel_scope.cancel()
            else:
                stopping = self._readiness.draining = True
                self.log.info("draining", reason=signal.Signals(number).name, timeout_ms=self._config.drain_timeout)
                self._supervisor.stopping(self._status())
                nursery.start_soon(self._drain)

    def close(self) -> None:
        """Release every file, after the last request."""
        self._pumps.release()
        self._library.close()

    async def _tell_lives(self) -> None:
        """Report each time that Trio and all serving loops, which are woken for it, have had a turn."""
        while True:
            await self._pumps.pass_round()
            self._supervisor.lives(self._status())
            await trio.sleep(self._supervisor.period_s)

    def _status(self) -> str:
        """Return the node's state in a line for the supervisor."""
        if self._has_left:
            return "stops: it has left the cluster, and answers the requests in flight"
        if self._readiness.draining:
            return "stops: it still answers, while other nodes copy the active data that only it has"
        if self._directory.silence is not None:
            return f"silent: it serves built versions, unseen by other nodes: {self._directory.silence.message}"
        count, unserved = self._library.known_count, self._library.unserved()
        waits = f", not yet {', '.join(unserved[:NAMED])}{', ...' if len(unserved) > NAMED else ''}" if unserved else ""
        members = self._membership.others
        alive = sum(member.state in LIVE for member in members)
        return (
            f"serves {count - len(unserved)} of {count} datasets{waits}; hears {alive} of {len(members)} other members"
        )

    async def _mend(self) -> None:
        """Retry until the epoch of this start is kept; then speak, and build again."""
        while self._directory.silence is not None:
            await trio.sleep(MEND_PERIOD_S)
            with contextlib.suppress(StorageError):  # The failure was logged; `info` has the current one.
                await self._environment.threads.run(self._directory.begin)
        self._gossiping.speak()
        self._library.resume()
        self._tables.look_again()
        self.log.info("speaks", node=self._directory.record.node, epoch=self._directory.record.epoch)

    async def _look_again(self) -> None:
        """Read databases' settings, keys, users and certificate again, then the source."""
        await self._reloads.run()
        await self._read_keys()
        await self._users_file.read()
        await self._certificate.read_again()
        self._library.refresh()

    def _know_users(self, users: Users) -> None:
        self._pumps.users_changed(self._access.use(users))

    async def _read_keys(self) -> None:
        """Use the key ring as it is now; a wrong one changes nothing."""
        try:
            await self._gossiping.read_keys(self._environment)
        except ConfigError as error:
            self.log.warning("keys_unchanged", reason=error.message)
        else:
            if ring := self._gossiping.ring():
                self.log.info("keys", ids=" ".join(key.id.hex() for key in ring))

    async def _reconfigure(self) -> None:
        """Use the databases' settings as the file has them now; wrong ones change nothing."""
        if self._reload is None:
            return
        try:
            databases = await self._environment.threads.run(self._reload, abandon_on_cancel=True)
        except ConfigError as error:
            self.log.warning("settings_unchanged", reason=error.message)
        else:
            self._library.reconfigure(databases)
            self._know_types(databases)
            if self._gateway is not None:
                self._gateway.reconfigure(databases)

    def _know_types(self, databases: Mapping[str, DatabaseSettings]) -> None:
        types = types_of(self._config.content_type, databases)
        self._pumps.know_types(types.usual, types.by_database)

    async def _drain(self) -> None:
        drain_s = self._config.drain_timeout / 1000
        await self._hand_over(drain_s)
        self._has_left = True
        self._supervisor.doing(self._status())
        await self._gossiping.leave()
        due = trio.current_time() + drain_s
        if self._gateway is not None:
            self._gateway.drain(drain_s)
            with trio.move_on_after(drain_s * GATEWAY_PART):
                await self._gateway.ended()
        if not await self._pumps.drain(max(0.0, due - trio.current_time())):
            self.log.warning("drain_timed_out", timeout_ms=self._config.drain_timeout)

    async def _hand_over(self, timeout_s: float) -> None:
        """Serve on until others have the active data and smeared puts that only this node has, at most `timeout_s`."""
        self._library.leave(now_ms=int(trio.current_time() * 1000))
        self._gossiping.say_leaving()
        with trio.move_on_after(timeout_s) as limit:
            while True:
                smeared = 0 if (buffer := self._participant.service.smear_buffer) is None else buffer.drain()
                if not self._library.is_missed(now_ms=int(trio.current_time() * 1000)) and not smeared:
                    return
                await trio.sleep(HAND_OVER_LOOK_S)
        if limit.cancelled_caught and smeared:
            self.log.warning("smeared_left", puts=smeared)
        elif limit.cancelled_caught:
            self.log.warning("missed", reason="other nodes have not copied all active data that only this node has")

    def _perform(self, core: DatabaseCore, effects: Sequence[Outward]) -> None:
        self._sharing.perform(core, effects)

    def _look_around(self) -> None:
        self._sharing.look_again()

    def _look_at(self, record: bytes) -> None:
        self._reads.look_at(record)

    def _publish(self) -> None:
        self._reads.published = published = publish((held, held.active) for held in self._library.held())
        self._pumps.publish(published)
        if self._gateway is not None:
            self._gateway.look_for_hidden(self._library.known)
