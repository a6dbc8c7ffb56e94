/* What a core's program does at its statements. */

elfkiln_modes *elfkiln_modes_now;

/* Where a kernel that broke a rule comes back to. */
static void *violation_exit[5];

__attribute__((noreturn, visibility("hidden"))) void elfkiln_violation(const char *what) {
    if (fail_core(run.core, CODE_KERNEL))
        text_string(what);
    __builtin_longjmp(violation_exit, 1);
}

/* Notes the statement and says whether the core may execute it. */
static bool begin(sim_core *core, uint32_t step) {
    core->step = step;
    const char *fault = core->statements[step].fault;
    if (fault && fail_core(core, CODE_CORE))
        text_string(fault);
    return !run.code;
}

/* Counts work; a design that works without end and without a byte for the host fails here. */
static bool worked(sim_core *core, uint32_t units) {
    run.idle += units;
    if (run.idle < MOST_IDLE)
        return true;
    if (fail_core(core, CODE_DEADLOCK))
        text_string("the array works on without a byte for the host and without end");
    return false;
}

static bool waits(sim_core *core, enum sim_wait what, uint16_t index) {
    core->waits = what;
    core->waits_index = index;
    return false;
}

static int64_t value_of(const sim_core *core, sim_value value) {
    switch (value.kind) {
    case SIM_LOADED:
        return core->loaded[value.number];
    case SIM_INDEX:
        return core->index[value.number];
    default:
        return value.value;
    }
}

static uint64_t held(const sim_port *port) {
    const sim_pool *pool = port->pool;
    return port->consume ? pool->reader_took - pool->reader_gave : pool->writer_took - pool->writer_gave;
}

static uint64_t oldest_held(const sim_port *port) {
    return port->consume ? port->pool->reader_gave : port->pool->writer_gave;
}

bool sim_acquire(sim_core *core, uint32_t step) {
    if (!begin(core, step) || !worked(core, 1))
        return false;
    const sim_statement *s = &core->statements[step];
    sim_port *port = &core->ports[s->index];
    sim_pool *pool = port->pool;
    /* Objects held already count: acquire(2) after acquire(1) takes one more. */
    uint64_t have = held(port);
    uint64_t more = s->count > have ? s->count - have : 0;
    if (port->consume) {
        if (pool->writer_gave - pool->reader_took < more)
            return waits(core, SIM_WAITS_POOL, s->index);
        for (uint64_t i = 0; i < more; ++i)
            slot_take(&core->clock, &pool->given, slot_of(pool, pool->reader_took + i));
        pool->reader_took += more;
    } else {
        if (pool->depth - (pool->writer_took - pool->reader_gave) < more)
            return waits(core, SIM_WAITS_POOL, s->index);
        for (uint64_t i = 0; i < more; ++i) {
            pool->filled[slot_of(pool, pool->writer_took + i)] = 0;
            place_fresh(pool, place_of(pool, pool->writer_took + i));
            slot_take(&core->clock, &pool->freed, slot_of(pool, pool->writer_took + i));
        }
        pool->writer_took += more;
        if (!have)
            port->consumed = core->consumed;
    }
    core->acquired[s->number] = (sim_acquired){oldest_held(port), s->count};
    core->waits = SIM_RUNS;
    return true;
}

bool sim_release(sim_core *core, uint32_t step) {
    if (!begin(core, step))
        return false;
    const sim_statement *s = &core->statements[step];
    sim_port *port = &core->ports[s->index];
    sim_pool *pool = port->pool;
    if (held(port) < s->count) {
        if (fail_core(core, CODE_CORE))
            text_add("it holds %d", (int64_t)held(port));
        return false;
    }
    if (port->consume) {
        for (uint64_t i = 0; i < s->count; ++i)
            slot_give(&core->clock, &pool->freed, slot_of(pool, pool->reader_gave + i));
        pool->reader_gave += s->count;
        core->consumed += s->count;
        wake(pool->writer);
        return true;
    }
    for (uint64_t i = 0; i < s->count; ++i)
        if (!pool->filled[slot_of(pool, pool->writer_gave + i)]) {
            if (fail_core(core, CODE_ACCESS))
                text_string("nothing wrote the object");
            return false;
        }
    for (uint64_t i = 0; i < s->count; ++i)
        slot_give(&core->clock, &pool->given, slot_of(pool, pool->writer_gave + i));
    pool->writer_gave += s->count;
    port->consumed = core->consumed;
    wake(pool->reader);
    return true;
}

bool sim_use_lock(sim_core *core, uint32_t step) {
    if (!begin(core, step) || !worked(core, 1))
        return false;
    const sim_statement *s = &core->statements[step];
    uint16_t number = core->locks[s->index];
    sim_lock *lock = &DESIGN->locks[number];
    int64_t value = value_of(core, s->value);
    if (value < 0 || value > DESIGN->most_lock) {
        if (fail_core(core, CODE_CORE))
            text_add("the value is %d, a lock counts from 0 to %d", value, (int64_t)DESIGN->most_lock);
        return false;
    }
    if (s->action == SIM_LOCK_RELEASE) {
        if (lock->value + value > DESIGN->most_lock) {
            if (fail_core(core, CODE_CORE))
                text_add("%s holds %d, and a lock counts to %d", lock->name, lock->value, (int64_t)DESIGN->most_lock);
            return false;
        }
        if (lock->set > core->clock.ticks[0]) {
            if (fail_core(core, CODE_CORE)) {
                text_add("%s at %s may be set later, in ", lock->name, lock->tile);
                text_step_of(lock->set_by, lock->set_at);
            }
            return false;
        }
        lock->value += value;
        lock->uses[core - DESIGN->cores] = (sim_use){clock_tick(&core->clock, core->part), step};
        for (uint32_t i = 0; i < DESIGN->part_count; ++i)
            if (core->clock.ticks[i] > lock->ticks[i])
                lock->ticks[i] = core->clock.ticks[i];
    } else {
        if (s->action == SIM_LOCK_EQUAL ? lock->value != value : lock->value < value)
            return waits(core, SIM_WAITS_LOCK, number);
        lock->value -= value;
        clock_join(&core->clock, lock->ticks);
        lock->uses[core - DESIGN->cores] = (sim_use){clock_tick(&core->clock, core->part), step};
        core->last_lock = number;
    }
    for (uint32_t i = 0; i < DESIGN->core_count; ++i)
        if (DESIGN->cores[i].waits == SIM_WAITS_LOCK && DESIGN->cores[i].waits_index == number)
            wake(i);
    core->waits = SIM_RUNS;
    return true;
}

bool sim_load(sim_core *core, uint32_t step) {
    if (!begin(core, step))
        return false;
    const sim_statement *s = &core->statements[step];
    const sim_buffer *buffer = &DESIGN->buffers[core->buffers[s->index]];
    int64_t element = value_of(core, s->value);
    if (element < 0 || element >= buffer->elements) {
        if (fail_core(core, CODE_CORE))
            text_add("element %d of %d", element, (int64_t)buffer->elements);
        return false;
    }
    if (!buffer->filled[element]) {
        if (fail_core(core, CODE_ACCESS))
            text_add("element %d of %s is read before it is written", element, buffer->name);
        return false;
    }
    sim_parameter *parameter = find_parameter(buffer, (uint64_t)element);
    if (parameter && !use_parameter(core, parameter))
        return false;
    const uint8_t *at = buffer->bytes + element * buffer->element_bytes;
    uint64_t value = 0;
    for (uint32_t i = 0; i < buffer->element_bytes; ++i)
        value |= (uint64_t)at[i] << 8 * i;
    uint32_t unused = 64 - 8 * (uint32_t)buffer->element_bytes;
    core->loaded[s->number] = buffer->is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
    return true;
}

#ifdef SIM_MORE
bool sim_store(sim_core *core, uint32_t step) {
    if (!begin(core, step))
        return false;
    const sim_statement *s = &core->statements[step];
    sim_buffer *buffer = &DESIGN->buffers[core->buffers[s->index]];
    int64_t element = value_of(core, s->value);
    if (element < 0 || element >= buffer->elements) {
        if (fail_core(core, CODE_CORE))
            text_add("element %d of %d", element, (int64_t)buffer->elements);
        return false;
    }
    sim_parameter *parameter = find_parameter(buffer, (uint64_t)element);
    if (parameter && !use_parameter(core, parameter))
        return false;
    uint64_t value = (uint64_t)value_of(core, s->stored);
    for (uint32_t i = 0; i < buffer->element_bytes; ++i)
        buffer->bytes[element * buffer->element_bytes + i] = (uint8_t)(value >> 8 * i);
    buffer->filled[element] = 1;
    return true;
}
#endif

bool sim_loop(sim_core *core, uint32_t step, sim_value lower, sim_value upper, sim_value by) {
    if (!begin(core, step))
        return false;
    uint16_t loop = core->statements[step].number;
    core->index[loop] = value_of(core, lower);
    core->bound[loop] = value_of(core, upper);
    core->by[loop] = value_of(core, by);
    if (core->by[loop] < 1) {
        if (fail_core(core, CODE_CORE))
            text_add("it steps by %d", core->by[loop]);
        return false;
    }
    return true;
}

bool sim_turn(sim_core *core, uint32_t step) {
    core->step = step;
    return worked(core, 1);
}

bool sim_next(sim_core *core, uint16_t loop) {
    return !__builtin_add_overflow(core->index[loop], core->by[loop], &core->index[loop]);
}

void sim_ended(sim_core *core) {
    core->waits = SIM_ENDED;
}

/* Returns the place of a call's object, or NULL when the core does not hold it; `filled` is where its flag is. */
static sim_place *object_of(const sim_core *core, const sim_argument *argument, uint8_t **filled) {
    const sim_port *port = &core->ports[argument->port];
    const sim_pool *pool = port->pool;
    uint64_t object = core->acquired[argument->number].first + argument->index;
    if (object < oldest_held(port) || object >= oldest_held(port) + held(port))
        return NULL;
    uint64_t slot = slot_of(pool, object);
    *filled = &pool->filled[slot];
    return &pool->places[slot];
}

static bool buffer_filled(const sim_buffer *buffer) {
    for (uint32_t i = 0; i < buffer->elements; ++i)
        if (!buffer->filled[i])
            return false;
    return true;
}

/* Appends e.g. `argument 2, an object of C_0_0,`. */
static void text_argument(const sim_core *core, const sim_statement *s, uint32_t number) {
    const sim_argument *argument = &s->arguments[number];
    text_add("argument %d", (int64_t)number);
    if (argument->kind == SIM_OBJECT)
        text_add(", an object of %s,", core->ports[argument->port].fifo);
    if (argument->kind == SIM_BUFFER)
        text_add(", buffer %s,", DESIGN->buffers[core->buffers[argument->number]].name);
}

/*
 * How many calls of a core are checked for a kernel that writes what it declares to read only. Others may have the same
 * bytes, and the host: such a core gets a copy, and what it does to the copy shows afterwards.
 */
enum { CALLS_CHECKED = 4 };

/* Fails when a kernel has changed an object that it declares to read only; `before` is the object as it was. */
static __attribute__((noinline)) bool check_unchanged(const sim_core *core, uint32_t number, const uint8_t *before, uint64_t bytes) {
    const uint8_t *after = core->pointers[number];
    for (uint64_t i = 0; i < bytes; ++i)
        if (before[i] != after[i]) {
            if (fail_core(core, CODE_KERNEL)) {
                text_argument(core, &core->statements[core->step], number);
                text_string(" is written, and the microkernel declares that it only reads it");
            }
            return false;
        }
    return true;
}

bool sim_call(sim_core *core, uint32_t step, void (*kernel)(sim_core *core)) {
    if (!begin(core, step) || !worked(core, KERNEL_WORK))
        return false;
    const sim_statement *s = &core->statements[step];
    const elfkiln_declaration *declared = DESIGN->kernels[s->index].declaration;
    if (declared && declared->count != s->argument_count) {
        if (fail_core(core, CODE_CORE))
            text_add("the design passes %d arguments, the microkernel takes %d", (int64_t)s->argument_count,
                     (int64_t)declared->count);
        return false;
    }
    uint8_t *filled[ELFKILN_MOST_ARGUMENTS] = {0};
    uint32_t modes[ELFKILN_MOST_ARGUMENTS] = {0};
    sim_place *places[ELFKILN_MOST_ARGUMENTS] = {0};
    const uint8_t *before[ELFKILN_MOST_ARGUMENTS] = {0};
    for (uint32_t i = 0; i < s->argument_count; ++i) {
        const sim_argument *argument = &s->arguments[i];
        uint64_t bytes = 0;
        bool ready = true;
        if (argument->kind == SIM_SCALAR) {
            core->scalars[i] = value_of(core, argument->value);
        } else if (argument->kind == SIM_BUFFER) {
            const sim_buffer *buffer = &DESIGN->buffers[core->buffers[argument->number]];
            core->pointers[i] = buffer->bytes;
            bytes = (uint64_t)buffer->elements * buffer->element_bytes;
            ready = buffer_filled(buffer);
            modes[i] = ELFKILN_WRITE;
            for (uint32_t j = 0; j < buffer->parameter_count; ++j)
                if (!use_parameter(core, &buffer->parameters[j]))
                    return false;
        } else {
            const sim_port *port = &core->ports[argument->port];
            places[i] = object_of(core, argument, &filled[i]);
            bytes = port->pool->object_bytes;
            if (!places[i]) {
                if (fail_core(core, CODE_CORE)) {
                    text_argument(core, s, i);
                    text_string(" was released before");
                }
                return false;
            }
            ready = *filled[i];
            /* Without a declaration a kernel reads what it consumes and writes what it produces. */
            modes[i] = port->consume ? ELFKILN_READ : ELFKILN_WRITE;
            core->pointers[i] = places[i]->bytes;
        }
        if (declared) {
            modes[i] = declared->arguments[i].mode;
            if (declared->arguments[i].bytes != bytes) {
                if (fail_core(core, CODE_CORE)) {
                    text_argument(core, s, i);
                    text_add(" has %d bytes, the microkernel was compiled for %d", (int64_t)bytes,
                             (int64_t)declared->arguments[i].bytes);
                }
                return false;
            }
        }
        if (modes[i] & ELFKILN_READ && !ready) {
            if (fail_core(core, CODE_ACCESS)) {
                text_argument(core, s, i);
                text_string(" is read before anything wrote it");
            }
            return false;
        }
        for (uint32_t j = 0; declared && j < i; ++j)
            if (s->arguments[j].kind != SIM_SCALAR && argument->kind != SIM_SCALAR &&
                core->pointers[i] == core->pointers[j] && (modes[i] | modes[j]) & ELFKILN_WRITE) {
                if (fail_core(core, CODE_CORE)) {
                    text_argument(core, s, i);
                    text_add(" is also argument %d, and the kernel takes them to lie apart (__restrict)", (int64_t)j);
                }
                return false;
            }
    }
    for (uint32_t i = 0; i < s->argument_count; ++i) {
        if (s->arguments[i].kind != SIM_OBJECT)
            continue;
        sim_pool *pool = core->ports[s->arguments[i].port].pool;
        /* What a kernel without a declaration does with an object, and what it finds in it, is between the two. */
        pool->fixed |= !declared;
        bool check = declared && core->calls < CALLS_CHECKED && !place_alone(places[i]);
        if (check && !(modes[i] & ELFKILN_WRITE))
            before[i] = places[i]->bytes;
        if (check || !declared || modes[i] & ELFKILN_WRITE) {
            place_own(pool, places[i]);
            core->pointers[i] = places[i]->bytes;
        }
    }
    core->calls += core->calls < CALLS_CHECKED;
    run.core = core;
    elfkiln_modes_now = &core->modes;
    if (!__builtin_setjmp(violation_exit))
        kernel(core);
    if (run.code)
        return false;
    for (uint32_t i = 0; i < s->argument_count; ++i) {
        if (before[i] && !check_unchanged(core, i, before[i], core->ports[s->arguments[i].port].pool->object_bytes))
            return false;
        if (!(modes[i] & ELFKILN_WRITE))
            continue;
        if (s->arguments[i].kind == SIM_OBJECT)
            *filled[i] = 1;
        else if (s->arguments[i].kind == SIM_BUFFER) {
            sim_buffer *buffer = &DESIGN->buffers[core->buffers[s->arguments[i].number]];
            memset(buffer->filled, 1, buffer->elements);
        }
    }
    return true;
}

static void run_core(sim_core *core) {
    if (core->waits == SIM_ENDED)
        return;
    core->waits = SIM_RUNS;
    core->program(core);
}
