/* What a search shows first (a var, because searchtools.js declares the same one): pages for
   users, then the pages of the modules, whose names repeat
   the public ones. */
var Scorer = {
  score: ([docname, , , , score]) => (docname.startsWith("api/") ? score - 40 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
