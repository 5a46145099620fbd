// Offer the other versions that stand beside this one; nothing if there are none, or the site is read from files.
addEventListener("DOMContentLoaded", async () => {
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  const versions = answer?.ok ? await answer.json() : [];
  const here = root.pathname.split("/").at(-2);
  if (versions.length < 2 || !versions.includes(here)) return;
  const select = document.createElement("select");
  select.id = "versions";
  select.ariaLabel = "Version";
  for (const version of versions) select.add(new Option(version, version, false, version === here));
  select.onchange = () => { location.href = new URL(`../${select.value}/index.html`, root); };
  document.querySelector(".sidebar-brand").after(select);
});
