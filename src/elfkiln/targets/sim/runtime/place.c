/*
 * Where the bytes of objects are. What a DMA sends on unchanged is not copied: the receiver's slot has its object in the
 * block of the sender's, or in the host's memory. A block goes to the next object when no slot uses it any more, so
 * what a slot holds never changes under it, and a slot that is written has a block of its own.
 */

/* Objects begin at multiples of this, which microkernels rely on (and check). */
enum { OBJECT_ALIGNMENT = 64 };

static sim_place *place_of(const sim_pool *pool, uint64_t object) {
    return &pool->places[slot_of(pool, object)];
}

/* The first pool with slots of the size of pool `number`'s. */
static sim_pool *first_of_size(uint32_t number) {
    uint32_t first = 0;
    while (DESIGN->pools[first].slot_bytes != DESIGN->pools[number].slot_bytes)
        ++first;
    return &DESIGN->pools[first];
}

/* Gives every slot its first block; places and blocks are numbered as the slots are, pool by pool. */
static void reset_places(void) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < DESIGN->pool_count; ++i) {
        sim_pool *pool = &DESIGN->pools[i];
        pool->places = DESIGN->places + first;
        pool->peer = first_of_size(i);
        pool->unused = NULL;
        pool->fixed = false;
        for (uint32_t j = 0; j < pool->depth; ++j) {
            sim_block *block = &DESIGN->blocks[first + j];
            *block = (sim_block){pool->objects + (uint64_t)j * pool->slot_bytes, NULL, 1};
            pool->places[j] = (sim_place){block->bytes, block, 0, 0};
        }
        first += pool->depth;
    }
}

/* Whether a slot has a block that no other slot uses. */
static bool place_alone(const sim_place *place) {
    return place->block && place->block->users == 1;
}

static void place_drop(const sim_pool *pool, sim_place *place) {
    sim_block *block = place->block;
    place->block = NULL;
    if (!block || --block->users)
        return;
    block->next = pool->peer->unused;
    pool->peer->unused = block;
}

/* Gives a slot a block of its own, whatever is in it. There is one: a slot uses at most one block of its size. */
static void place_fresh(const sim_pool *pool, sim_place *place) {
    if (!place_alone(place)) {
        place_drop(pool, place);
        place->block = pool->peer->unused;
        pool->peer->unused = place->block->next;
        place->block->users = 1;
    }
    place->bytes = place->block->bytes;
    place->run = 0;
}

/* Lets a slot have its object where another has it. */
static void place_share(const sim_pool *pool, sim_place *place, sim_place with) {
    if (with.block)
        ++with.block->users;
    place_drop(pool, place);
    *place = with;
}

/* Gives a slot a copy of its object that it alone has. */
static __attribute__((noinline)) void place_copy(const sim_pool *pool, sim_place *place) {
    const sim_place old = *place;
    place_fresh(pool, place);
    if (!old.run)
        copy_bytes(place->bytes, old.bytes, pool->object_bytes);
    else
        copy_runs(place->bytes, (int64_t)old.run, old.bytes, old.stride, old.run, pool->object_bytes / old.run);
}

static void place_own(const sim_pool *pool, sim_place *place) {
    if (!place_alone(place))
        place_copy(pool, place);
}

/*
 * Works out the pattern over rows in the host's memory that visits the bytes that `pattern` visits in the object made of
 * them; false when there is none, for a loop that goes over the end of a row.
 */
static bool pattern_over_rows(sim_pattern *over, const sim_pattern *pattern, uint64_t run, int64_t stride) {
    *over = *pattern;
    if (!pattern->dims) {
        over->run = run;
        over->dims = 1;
        over->dim[0].size = pattern->bytes / run;
        over->dim[0].stride = stride;
        return !pattern->offset && !(pattern->bytes % run);
    }
    int64_t row_bytes = (int64_t)run;
    int64_t reach = pattern->offset % row_bytes + (int64_t)pattern->run;
    over->offset = pattern->offset / row_bytes * stride + pattern->offset % row_bytes;
    for (uint32_t d = 0; d < pattern->dims; ++d) {
        int64_t step = pattern->dim[d].stride;
        if (step < 0)
            return false;
        if (step % row_bytes)
            reach += step * ((int64_t)pattern->dim[d].size - 1);
        else
            over->dim[d].stride = step / row_bytes * stride;
    }
    return pattern->offset >= 0 && reach <= row_bytes;
}
