/*
 * What must happen before what. The runtime takes one order of many that the array may take; a right design is right in
 * all of them. So every place where two sides meet is checked against what the design itself puts in order.
 *
 * Each agent and the sequence have a clock: for every part (0 is the sequence, the others are cores that use locks or
 * buffers and streams that run tasks) the last of its ticks that surely lies behind. Clocks go along with what makes
 * one side wait for another: an object given or given back, a lock, a task's start, a task awaited.
 */

static void clock_join(sim_clock *clock, const uint64_t *ticks) {
    bool later = false;
    for (uint32_t i = 0; i < DESIGN->part_count; ++i)
        if (ticks[i] > clock->ticks[i]) {
            clock->ticks[i] = ticks[i];
            later = true;
        }
    clock->version += later;
}

static void clock_copy(uint64_t *to, const uint64_t *from) {
    copy_bytes((uint8_t *)to, (const uint8_t *)from, DESIGN->part_count * sizeof *to);
}

/* Notes that an agent did something of its own: the tick of it. */
static uint64_t clock_tick(sim_clock *clock, uint16_t part) {
    ++clock->version;
    return ++clock->ticks[part];
}

/* Raises what an agent knows of the sequence. */
static void clock_follow_sequence(sim_clock *clock, uint64_t tick) {
    if (tick > clock->ticks[0]) {
        clock->ticks[0] = tick;
        ++clock->version;
    }
}

/* Hands a slot of a pool on. Most often the clock is what it was the last time, and nothing is copied. */
static void slot_give(const sim_clock *clock, sim_slots *slots, uint64_t slot) {
    if (slots->versions[slot] == clock->version)
        return;
    slots->versions[slot] = clock->version;
    clock_copy(slots->ticks + slot * DESIGN->part_count, clock->ticks);
}

/* Takes a slot over, with all that whoever gave it knew. */
static void slot_take(sim_clock *clock, sim_slots *slots, uint64_t slot) {
    if (slots->versions[slot] <= slots->seen)
        return;
    slots->seen = slots->versions[slot];
    clock_join(clock, slots->ticks + slot * DESIGN->part_count);
}

/* Whether the sequence knows that a task is done: something it awaited comes after its end. */
static bool task_known(const sim_task *task, const sim_task_state *state) {
    return state->proven || (state->done && DESIGN->clock.ticks[DESIGN->streams[task->stream].part] >= state->done_tick);
}

static bool use_known(uint32_t core, const sim_use *use) {
    return DESIGN->clock.ticks[DESIGN->cores[core].part] >= use->tick;
}

/* The parameter that is element `element` of a buffer, or NULL when no sequence writes it. */
static sim_parameter *find_parameter(const sim_buffer *buffer, uint64_t element) {
    uint32_t low = 0, high = buffer->parameter_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (buffer->parameters[middle].element < element)
            low = middle + 1;
        else
            high = middle;
    }
    return low < buffer->parameter_count && buffer->parameters[low].element == element ? &buffer->parameters[low] : NULL;
}

/* Appends which lock let a core on, and where the sequence set it. */
static void text_let_on(const sim_core *core) {
    if (core->last_lock == SIM_NONE) {
        text_string("no lock holds the core up");
        return;
    }
    const sim_lock *lock = &DESIGN->locks[core->last_lock];
    text_add("%s at %s let the core on", lock->name, lock->tile);
    if (lock->set_by) {
        text_string(", set in ");
        text_step_of(lock->set_by, lock->set_at);
    }
}

/* Notes that a core reads (or a kernel may write) a parameter; false when the sequence may write it just then. */
static bool use_parameter(sim_core *core, sim_parameter *parameter) {
    if (parameter->written > core->clock.ticks[0]) {
        if (fail_core(core, CODE_ACCESS)) {
            const sim_buffer *buffer = parameter->buffer;
            text_add("element %d of %s at %s may be written later, in ", (int64_t)parameter->element, buffer->name,
                     buffer->tile);
            text_step_of(parameter->written_by, parameter->written_at);
            text_string("; ");
            text_let_on(core);
        }
        return false;
    }
    parameter->uses[core - DESIGN->cores] = (sim_use){clock_tick(&core->clock, core->part), core->step};
    return true;
}

/* Fails at the sequence's step when a core's use of a parameter or lock is not known to lie behind. */
static bool check_uses(const sim_use *uses) {
    for (uint32_t i = 0; i < DESIGN->core_count; ++i) {
        const sim_core *core = &DESIGN->cores[i];
        if (use_known(i, &uses[i]))
            continue;
        if (fail_step(CODE_SEQUENCE)) {
            text_string("nothing that was awaited says that the core is past ");
            text_statement(core, uses[i].step);
            text_string("; ");
            text_let_on(core);
        }
        return false;
    }
    return true;
}

/* Forgets all clocks; load_pdi comes before everything that any agent does from now on. */
static void reset_clocks(void) {
    uint64_t tick = DESIGN->clock.ticks[0];
    memset(DESIGN->ticks, 0, DESIGN->tick_bytes);
    memset(DESIGN->slot_versions, 0, DESIGN->slot_version_bytes);
    DESIGN->clock.ticks[0] = tick;
    for (uint32_t i = 0; i < DESIGN->core_count; ++i) {
        DESIGN->cores[i].clock.ticks[0] = tick;
        DESIGN->cores[i].clock.version = 1;
        DESIGN->cores[i].last_lock = SIM_NONE;
    }
    for (uint32_t i = 0; i < DESIGN->stream_count; ++i) {
        DESIGN->streams[i].clock.ticks[0] = tick;
        DESIGN->streams[i].clock.version = 1;
    }
    for (uint32_t i = 0; i < DESIGN->pool_count; ++i)
        DESIGN->pools[i].given.seen = DESIGN->pools[i].freed.seen = 0;
    for (uint32_t i = 0; i < DESIGN->parameter_count; ++i) {
        sim_parameter *parameter = &DESIGN->parameters[i];
        parameter->written = 0;
        memset(parameter->uses, 0, DESIGN->core_count * sizeof *parameter->uses);
    }
    for (uint32_t i = 0; i < DESIGN->lock_count; ++i) {
        sim_lock *lock = &DESIGN->locks[i];
        lock->set = 0;
        lock->set_by = NULL;
        memset(lock->uses, 0, DESIGN->core_count * sizeof *lock->uses);
    }
}
