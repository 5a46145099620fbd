/* The kernel's share of a server: epoll, recv, send, and nothing in between.
 *
 *     floor REQUEST_BYTES ANSWER_BYTES
 *
 * Each REQUEST_BYTES that arrive on a connection are answered with ANSWER_BYTES without meaning; all answers that one
 * receive completes go out with one send. The program prints its port, and runs until it is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, CONNECTIONS = 65536, INBOX = 65536, OUTBOX = 1 << 20 };

static char inbox[INBOX], outbox[OUTBOX];
static long received[CONNECTIONS], owed[CONNECTIONS]; /* bytes, by descriptor */
static int epoll, blocked[CONNECTIONS];

static void watch(int operation, int fd, unsigned interest) {
    struct epoll_event event = {.events = interest, .data.fd = fd};
    epoll_ctl(epoll, operation, fd, &event);
}

static void pay(int fd) {
    while (owed[fd] > 0) {
        long size = owed[fd] < OUTBOX ? owed[fd] : OUTBOX;
        long taken = send(fd, outbox, size, MSG_NOSIGNAL);
        if (taken <= 0) break;
        owed[fd] -= taken;
    }
    if ((owed[fd] > 0) != blocked[fd]) {
        blocked[fd] = owed[fd] > 0;
        watch(EPOLL_CTL_MOD, fd, blocked[fd] ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

static void serve(int fd, unsigned events, long request, long answer) {
    if (events & EPOLLOUT) pay(fd);
    if (!(events & ~EPOLLOUT)) return;
    long size = recv(fd, inbox, INBOX, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
        close(fd);
        return;
    }
    received[fd] += size;
    owed[fd] += received[fd] / request * answer;
    received[fd] %= request;
    pay(fd);
}

static void take(int listener) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS) {
            close(fd);
            continue;
        }
        received[fd] = owed[fd] = blocked[fd] = 0;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(EPOLL_CTL_ADD, fd, EPOLLIN);
    }
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct epoll_event events[EVENTS];
    if (count != 3) return 2;
    long request = atol(words[1]), answer = atol(words[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    epoll = epoll_create1(0);
    if (request < 1 || answer < 1 || listener < 0 || epoll < 0) return 2;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    watch(EPOLL_CTL_ADD, listener, EPOLLIN);
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int found = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < found; i++) {
            if (events[i].data.fd == listener) take(listener);
            else serve(events[i].data.fd, events[i].events, request, answer);
        }
    }
}
