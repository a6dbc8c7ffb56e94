/* The simulator's runtime, one translation unit: runs a design's agents in a fixed order, one at a time. */

#include "sim.h"

#include "memory.c"
#include "text.c"
#include "state.c"
#include "order.c"
#include "walk.c"
#include "place.c"
#include "stream.c"
#include "core.c"
#include "deadlock.c"
#include "sequence.c"
