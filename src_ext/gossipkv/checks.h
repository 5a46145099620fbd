/* Whether invariants are checked while the program runs: in the debug build alone, where setup.py says so. */

#ifndef GKV_CHECKS
#define GKV_CHECKS 0
#endif
