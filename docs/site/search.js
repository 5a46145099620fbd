// Pages that explain come before reference pages, and those before pages for developers; a page's title counts most.
var Scorer = {
  score: ([page, , , , score]) => score - (page.startsWith("development/") ? 12 : page.startsWith("reference/") ? 6 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
