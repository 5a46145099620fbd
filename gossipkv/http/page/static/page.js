// Refreshes the page in place: asks for the same address every two seconds and puts the new content where the old was.
// Without this script the page shows the same content, and does not refresh.
"use strict";

(() => {
  const PERIOD_MS = 2000;
  const PATIENCE_MS = 8000;
  const stale = document.getElementById("stale");
  let timer = 0;
  let failedSince = null;

  // The position of the focused element, so that the element can be found again after a refresh.
  const place = (element) => {
    if (!element || element === document.body) return null;
    if (element.id) return { id: element.id };
    if (element.tagName === "SUMMARY") return { summary: element.parentElement.id };
    const links = Array.from(document.querySelectorAll("#main a"));
    const same = links.filter((link) => link.getAttribute("href") === element.getAttribute("href"));
    return { href: element.getAttribute("href"), nth: same.indexOf(element) };
  };

  const find = (wanted) => {
    if (wanted === null) return null;
    if (wanted.id) return document.getElementById(wanted.id);
    if (wanted.summary) return document.getElementById(wanted.summary)?.querySelector("summary");
    const links = Array.from(document.querySelectorAll("#main a"));
    return links.filter((link) => link.getAttribute("href") === wanted.href)[wanted.nth];
  };

  const isSelecting = () => {
    const selection = window.getSelection();
    return selection !== null && !selection.isCollapsed && document.getElementById("main").contains(selection.anchorNode);
  };

  const take = (next, selector) => {
    const [here, there] = [document.querySelector(selector), next.querySelector(selector)];
    here.replaceChildren(...Array.from(there.childNodes, (node) => document.importNode(node, true)));
  };

  const differs = (next, selector) =>
    document.querySelector(selector).textContent !== next.querySelector(selector).textContent;

  const replace = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html");
    const main = document.getElementById("main");
    if (!next.getElementById("main")) throw new Error("the answer is no page of GossipKV");
    const wasInside = main.contains(document.activeElement) && document.activeElement !== main;
    const focused = wasInside ? place(document.activeElement) : null;
    const open = Array.from(main.querySelectorAll("details[open]"), (each) => each.id);
    const [left, top] = [window.scrollX, window.scrollY];

    take(next, "#main");
    take(next, "#refresh");
    // The form stays, since a user may be typing.  It appears with the first database.
    const [form, nextForm] = [document.getElementById("lookup"), next.getElementById("lookup")];
    if (!form !== !nextForm) return void location.reload();
    if (form && differs(next, "#found")) take(next, "#found");
    take(next, "footer");
    if (differs(next, ".top nav")) take(next, ".top nav");
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (wasInside) (find(focused) ?? main).focus({ preventScroll: true });
    window.scrollTo(left, top);

    // Screen readers read the summary aloud, so it is replaced only when it changes.
    if (differs(next, "#summary")) {
      document.getElementById("summary").className = next.getElementById("summary").className;
      take(next, "#summary");
    }
    document.title = next.title;
  };

  const complain = (why) => {
    failedSince ??= new Date().toLocaleTimeString();
    const line = `No answer since ${failedSince}: ${why}. The page shows older data and tries again every two seconds.`;
    if (stale.textContent !== line) stale.textContent = line;
    stale.hidden = false;
  };

  const refresh = async () => {
    const patience = new AbortController();
    const limit = setTimeout(() => patience.abort(), PATIENCE_MS);
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: patience.signal });
      const html = await answer.text();
      if (answer.ok) {
        if (!isSelecting()) replace(html);
        failedSince = null;
        stale.hidden = true;
        stale.textContent = "";
      } else {
        const code = answer.headers.get("X-GossipKV-Error");
        complain(`HTTP ${answer.status}${code ? `, ${code}` : ""}`);
      }
    } catch (error) {
      complain(error.name === "AbortError" ? "the node did not answer in time" : "the node cannot be reached");
    } finally {
      clearTimeout(limit);
    }
  };

  const tick = async () => {
    await refresh();
    plan();
  };

  const plan = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(tick, PERIOD_MS);
  };

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) tick();
  });
  plan();
})();
