/* Runs a sequence: its steps, in between the agents that are ready, and at its end what it left undone. */

static void zero(void *at, size_t count) {
    memset(at, 0, count);
}

static void reset_end(sim_end *end) {
    end->open = false;
    end->segment = 0;
    end->repeated = 0;
    end->left = 0;
    zero(&end->queue, sizeof end->queue);
#ifdef SIM_MORE
    end->begun = 0;
#endif
}

/* Puts the array in the state that load_pdi leaves: cores at their first statement, FIFOs empty, locks at their init. */
static void reset_array(void) {
    reset_places();
    for (uint32_t i = 0; i < DESIGN->pool_count; ++i) {
        sim_pool *pool = &DESIGN->pools[i];
        pool->writer_took = pool->writer_gave = pool->reader_took = pool->reader_gave = 0;
        zero(pool->filled, pool->depth);
#ifdef SIM_MORE
        pool->writer_took = pool->writer_gave = pool->initial;
        for (uint32_t j = 0; j < pool->initial; ++j) {
            const uint8_t *object = pool->contents + (uint64_t)j * pool->object_bytes;
            copy_bytes(pool->objects + (uint64_t)j * pool->slot_bytes, object, pool->object_bytes);
            pool->filled[j] = 1;
        }
#endif
    }
    for (uint32_t i = 0; i < DESIGN->stream_count; ++i) {
        sim_stream *stream = &DESIGN->streams[i];
        reset_end(&stream->source);
        for (uint32_t j = 0; j < stream->sink_count; ++j)
            reset_end(&stream->sinks[j]);
        stream->waits = SIM_RUNS;
        stream->queued = false;
    }
    for (uint32_t i = 0; i < DESIGN->buffer_count; ++i)
        zero(DESIGN->buffers[i].filled, DESIGN->buffers[i].elements);
#ifdef SIM_MORE
    for (uint32_t i = 0; i < DESIGN->buffer_count; ++i) {
        sim_buffer *buffer = &DESIGN->buffers[i];
        if (!buffer->contents)
            continue;
        copy_bytes(buffer->bytes, buffer->contents, (uint64_t)buffer->elements * buffer->element_bytes);
        memset(buffer->filled, 1, buffer->elements);
    }
#endif
    for (uint32_t i = 0; i < DESIGN->lock_count; ++i)
        DESIGN->locks[i].value = DESIGN->locks[i].init;
    for (uint32_t i = 0; i < DESIGN->core_count; ++i) {
        sim_core *core = &DESIGN->cores[i];
        core->resume = core->step = 0;
        core->consumed = 0;
        core->calls = 0;
        core->modes = (elfkiln_modes){0, 0};
        core->waits = SIM_RUNS;
        core->queued = false;
        for (uint32_t j = 0; j < core->port_count; ++j)
            core->ports[j].consumed = 0;
    }
    reset_clocks();
    run.ready_first = run.ready_count = 0;
    for (uint32_t i = 0; i < agent_count(); ++i)
        wake(i);
    run.configured = true;
}

/* Runs the agent that has been ready longest; false when none is. */
static bool run_agent(void) {
    if (!run.ready_count)
        return false;
    uint32_t agent = DESIGN->ready[run.ready_first];
    run.ready_first = (run.ready_first + 1) % agent_count();
    --run.ready_count;
    run.task_done = false;
    if (agent < DESIGN->core_count) {
        DESIGN->cores[agent].queued = false;
        run_core(&DESIGN->cores[agent]);
    } else {
        sim_stream *stream = &DESIGN->streams[agent - DESIGN->core_count];
        stream->queued = false;
        run_stream(stream);
        if (++run.idle >= MOST_IDLE && fail(CODE_DEADLOCK)) {
            text_stream(stream);
            text_string(": the array works on without a byte for the host and without end");
        }
    }
    return true;
}

/* Fails at the current step; `format` may name one number. Returns false, for the caller to return. */
static bool refuse_step(int code, const char *format, int64_t number) {
    if (fail_step(code))
        text_add(format, number);
    return false;
}

/* Gives buffer descriptors to the tasks that are configured before step `number`. */
static bool configure_tasks(uint32_t number, uint32_t *next_task) {
    const sim_sequence *sequence = run.sequence;
    for (; *next_task < sequence->task_count && sequence->tasks[*next_task].configured_at <= number; ++*next_task) {
        const sim_task *task = &sequence->tasks[*next_task];
        if (task->shim == SIM_NONE)
            continue;
        if (DESIGN->shim_tasks[task->shim] == DESIGN->descriptors) {
            if (fail_step(CODE_SEQUENCE))
                text_add("task %d on %s finds all %d buffer descriptors of %s in use; await or free earlier tasks first",
                         (int64_t)*next_task, task->fifo, (int64_t)DESIGN->descriptors, DESIGN->shims[task->shim]);
            return false;
        }
        ++DESIGN->shim_tasks[task->shim];
        DESIGN->task_states[*next_task].configured = true;
    }
    return true;
}

static bool start_task(uint32_t number) {
    const sim_task *task = &run.sequence->tasks[number];
    sim_task_state *state = &DESIGN->task_states[number];
    if (task->fault) {
        if (fail_step(CODE_SEQUENCE))
            text_string(task->fault);
        return false;
    }
    if (state->freed)
        return refuse_step(CODE_SEQUENCE, "its buffer descriptor was given back before", 0);
    if ((int64_t)task->configured_at <= run.loaded_at)
        return refuse_step(CODE_SEQUENCE, "it was configured before load_pdi in step %d, which resets its descriptor",
                           run.loaded_at);
    if (state->started)
        return refuse_step(CODE_SEQUENCE, "it was started before, at step %d", state->started_at);
    if (!run.arguments[task->argument]) {
        if (fail_step(CODE_CALL))
            text_add("argument %s is NULL", ARGUMENT_NAMES[task->argument]);
        return false;
    }
    sim_end *end = task_end(task);
    sim_stream *stream = &DESIGN->streams[task->stream];
    /*
     * A full queue drops what is pushed. Whether it is full in time cannot be known from a design: the array goes on
     * meanwhile, as far as it can. Lint counts what the FIFO's buffers take.
     */
    while (end->queue.count == SIM_QUEUE && !run.code && run_agent())
        continue;
    if (run.code)
        return false;
    if (end->queue.count == SIM_QUEUE)
        return refuse_step(CODE_SEQUENCE,
                           "its channel holds %d tasks that cannot go on, so the array drops this one; await one first",
                           SIM_QUEUE);
    state->started = true;
    state->started_at = run.step;
    state->started_tick = DESIGN->clock.ticks[0];
    end->queue.task[(end->queue.first + end->queue.count++) % SIM_QUEUE] = number;
    wake_stream(stream);
    return true;
}

static void give_back(uint32_t number) {
    const sim_task *task = &run.sequence->tasks[number];
    DESIGN->task_states[number].freed = true;
    if (task->shim != SIM_NONE && DESIGN->task_states[number].configured)
        --DESIGN->shim_tasks[task->shim];
}

static bool await_task(uint32_t number) {
    const sim_sequence *sequence = run.sequence;
    const sim_task *task = &sequence->tasks[number];
    sim_task_state *state = &DESIGN->task_states[number];
    if (!state->started)
        return refuse_step(CODE_SEQUENCE, "it was not started", 0);
    if (!task->token)
        return refuse_step(CODE_SEQUENCE, "it issues no token (issue_token), so the wait would not end", 0);
    if (state->freed)
        return refuse_step(CODE_SEQUENCE, "its buffer descriptor was given back before", 0);
    for (uint32_t i = 0; i < sequence->task_count; ++i) {
        const sim_task_state *other = &DESIGN->task_states[i];
        if (sequence->tasks[i].stream == task->stream && sequence->tasks[i].drains == task->drains &&
            sequence->tasks[i].token && other->started && !other->awaited && other->started_at < state->started_at)
            return refuse_step(CODE_SEQUENCE, "it would take the token of task %d, which its channel started before",
                               i);
    }
    while (!state->done) {
        if (run.code)
            return false;
        if (!run_agent()) {
            fail_deadlock(task);
            return false;
        }
    }
    if (run.code)
        return false;
    state->awaited = true;
    clock_join(&DESIGN->clock, DESIGN->task_ticks + (uint64_t)number * DESIGN->part_count);
    give_back(number);
    /* A channel runs its tasks in order: what it started before is done too. */
    for (uint32_t i = 0; i < sequence->task_count; ++i)
        if (sequence->tasks[i].stream == task->stream && sequence->tasks[i].drains == task->drains &&
            DESIGN->task_states[i].started && DESIGN->task_states[i].started_at <= state->started_at)
            DESIGN->task_states[i].covered = true;
    return true;
}

static const char MAY_RUN[] = "it may still run: nothing the sequence awaited before depends on its end";

static bool free_task(uint32_t number) {
    const sim_task_state *state = &DESIGN->task_states[number];
    if (!state->started)
        return refuse_step(CODE_SEQUENCE, "it was not started", 0);
    if (state->freed)
        return refuse_step(CODE_SEQUENCE, "its buffer descriptor was given back before", 0);
    if (!state->done)
        return refuse_step(CODE_SEQUENCE, MAY_RUN, 0);
    /* It is done here and may run on the array. What is left over at the end may say why, so that is reported first. */
    if (run.unproven_free < 0 && !task_known(&run.sequence->tasks[number], state))
        run.unproven_free = run.step;
    give_back(number);
    return true;
}

static bool set_lock(const sim_step *step) {
    sim_lock *lock = &DESIGN->locks[step->index];
    if (lock->value && (step->value || lock->acquired))
        return refuse_step(CODE_SEQUENCE, "it still holds %d, which no core has taken", lock->value);
    if (!check_uses(lock->uses))
        return false;
    lock->value = step->value;
    lock->set = DESIGN->clock.ticks[0];
    lock->set_by = run.sequence;
    lock->set_at = run.step;
    clock_copy(lock->ticks, DESIGN->clock.ticks);
    for (uint32_t i = 0; i < DESIGN->core_count; ++i)
        if (DESIGN->cores[i].waits == SIM_WAITS_LOCK && DESIGN->cores[i].waits_index == step->index)
            wake(i);
    return true;
}

static bool rtp_write(const sim_step *step) {
    const sim_buffer *buffer = &DESIGN->buffers[step->index];
    sim_parameter *parameter = find_parameter(buffer, step->element);
    if (!check_uses(parameter->uses))
        return false;
    parameter->written = DESIGN->clock.ticks[0];
    parameter->written_by = run.sequence;
    parameter->written_at = run.step;
#ifdef SIM_MORE
    /* A word covers several of the smaller elements, which are parameters side by side. */
    for (uint32_t i = 1; i * buffer->element_bytes < 4; ++i) {
        if (!check_uses(parameter[i].uses))
            return false;
        parameter[i].written = parameter->written;
        parameter[i].written_by = run.sequence;
        parameter[i].written_at = run.step;
        for (uint32_t j = 0; j < buffer->element_bytes; ++j)
            buffer->bytes[(step->element + i) * buffer->element_bytes + j] =
                (uint8_t)((uint64_t)step->value >> 8 * (i * buffer->element_bytes + j));
        buffer->filled[step->element + i] = 1;
    }
#endif
    for (uint32_t i = 0; i < buffer->element_bytes; ++i)
        buffer->bytes[step->element * buffer->element_bytes + i] = (uint8_t)((uint64_t)step->value >> 8 * i);
    buffer->filled[step->element] = 1;
    return true;
}

/* Fails when a started task has not ended, or a drain has ended unseen. */
static bool check_tasks(void) {
    const sim_sequence *sequence = run.sequence;
    for (uint32_t i = 0; i < sequence->task_count; ++i) {
        const sim_task *task = &sequence->tasks[i];
        const sim_task_state *state = &DESIGN->task_states[i];
        if (!state->started || (state->done && (!task->drains || state->covered)))
            continue;
        if (fail(CODE_LEFT)) {
            text_add("%s ends: task %d, which %s %s, ", sequence->name, (int64_t)i, task->drains ? "drains" : "fills",
                     task->fifo);
            text_string(task->drains ? "was never awaited, so the host may read early; it began in "
                                     : "may still run; it began in ");
            text_step(state->started_at);
        }
        return false;
    }
    return true;
}

#ifdef SIM_MORE
static bool begins_with_objects(void) {
    for (uint32_t i = 0; i < DESIGN->pool_count; ++i)
        if (DESIGN->pools[i].initial)
            return true;
    return false;
}
#endif

/* Appends what a pool's reader has left in it. */
static bool check_pool(const sim_pool *pool) {
    uint64_t left = pool->writer_gave - pool->reader_gave;
#ifdef SIM_MORE
    /* What a core took once and never gives back is where it belongs. */
    if (pool->kept && left == pool->kept && pool->reader_took - pool->reader_gave == pool->kept)
        return true;
    /* Where objects were there from the start, as many are left: there, or where the cores have moved them on to. */
    if (begins_with_objects())
        return true;
#endif
    if (!left)
        return true;
    if (fail(CODE_LEFT)) {
        text_add("%s ends: %s at %s still has ", run.sequence->name, pool->name, pool->tile);
        text_objects(left);
        if (pool->reader_took > pool->reader_gave)
            text_add(", %d of them taken and not released", (int64_t)(pool->reader_took - pool->reader_gave));
        if (pool->reader != SIM_NONE) {
            text_string("; ");
            report_agent(pool->reader);
        }
    }
    return false;
}

/* Fails when bytes that entered the array have not left it, or a core stands in the middle of an object. */
static bool check_array(void) {
    for (uint32_t i = 0; i < DESIGN->stream_count; ++i) {
        const sim_stream *stream = &DESIGN->streams[i];
        for (uint32_t j = 0; j < stream->sink_count; ++j) {
            const sim_end *sink = &stream->sinks[j];
            if (!sink->count || !sink->open || sink->left == sink->cursor.pattern->bytes)
                continue;
            if (fail(CODE_LEFT)) {
                text_add("%s ends: ", run.sequence->name);
                text_stream(stream);
                text_add(" has %d of %d bytes of an object at %s", in_task_bytes(sink),
                         (int64_t)sink->cursor.pattern->bytes, end_pool(sink)->tile);
            }
            return false;
        }
    }
    for (uint32_t i = 0; i < DESIGN->pool_count; ++i)
        if (!check_pool(&DESIGN->pools[i]))
            return false;
    for (uint32_t i = 0; i < DESIGN->core_count; ++i) {
        const sim_core *core = &DESIGN->cores[i];
        for (uint32_t j = 0; j < core->port_count; ++j) {
            const sim_port *port = &core->ports[j];
            if (!port->pool || port->consume || !held(port) || port->consumed == core->consumed)
                continue;
            if (fail(CODE_LEFT)) {
                text_add("%s ends: ", run.sequence->name);
                text_core(core);
                text_add(" is in the middle of an object of %s: since it acquired it, it consumed ", port->fifo);
                text_objects(core->consumed - port->consumed);
            }
            return false;
        }
    }
    return true;
}

/* Fails when a task is done here, and nothing that the sequence awaited says that it is done on the array. */
static bool check_proven(void) {
    const sim_sequence *sequence = run.sequence;
    if (run.unproven_free >= 0) {
        run.step = (uint32_t)run.unproven_free;
        return refuse_step(CODE_SEQUENCE, MAY_RUN, 0);
    }
    for (uint32_t i = 0; i < sequence->task_count; ++i) {
        const sim_task_state *state = &DESIGN->task_states[i];
        if (!state->started || task_known(&sequence->tasks[i], state))
            continue;
        if (fail(CODE_LEFT)) {
            text_add("%s ends: task %d, which fills %s, may still run: nothing that was awaited depends on its end; "
                     "it began in ",
                     sequence->name, (int64_t)i, sequence->tasks[i].fifo);
            text_step(state->started_at);
        }
        return false;
    }
    return true;
}

/* Lets the array come to rest, and fails when something is left in it. */
static bool settle(void) {
    if (!check_tasks())
        return false;
    while (!run.code && run_agent())
        continue;
    return !run.code && check_array() && check_proven();
}

static bool load_pdi(void) {
    if (DESIGN->fault) {
        if (fail_step(CODE_DESIGN))
            text_string(DESIGN->fault);
        return false;
    }
    if (run.configured && run.again)
        return true;
    if (run.configured && !settle())
        return false;
    for (uint32_t i = 0; i < run.sequence->task_count; ++i)
        DESIGN->task_states[i].proven = DESIGN->task_states[i].started;
    reset_array();
    run.loaded_at = run.step;
    return true;
}

static bool run_step(const sim_step *step) {
    if (step->fault) {
        if (fail_step(CODE_SEQUENCE))
            text_string(step->fault);
        return false;
    }
    if (step->kind == SIM_LOAD_PDI)
        return load_pdi();
    if (!run.configured) {
        if (fail_step(CODE_CALL)) {
            text_string("the array is not configured, load_pdi comes first");
            if (DESIGN->initializer)
                text_add("; run %s before", DESIGN->initializer);
        }
        return false;
    }
    switch (step->kind) {
    case SIM_START:
        return start_task(step->index);
    case SIM_AWAIT:
        return await_task(step->index);
    case SIM_FREE:
        return free_task(step->index);
    case SIM_RTP_WRITE:
        return rtp_write(step);
    default:
        return set_lock(step);
    }
}

/* Fails when an argument that the sequence writes has elements that nothing wrote. */
static bool check_written(void) {
    for (uint32_t i = 0; i < SIM_ARGUMENTS; ++i) {
        const sim_host_argument *argument = &run.sequence->arguments[i];
        if (!argument->written)
            continue;
        int64_t byte = first_unset(DESIGN->written, 0, argument->bytes);
        if (byte < 0)
            continue;
        if (fail(CODE_LEFT))
            text_add("%s ends: element %d of %s was never written", run.sequence->name,
                     byte / (int64_t)argument->element_bytes, ARGUMENT_NAMES[i]);
        return false;
    }
    return true;
}

static void run_sequence(void) {
    const sim_sequence *sequence = run.sequence;
    uint32_t next_task = 0;
    zero(DESIGN->shim_tasks, DESIGN->shim_count * sizeof *DESIGN->shim_tasks);
    zero(DESIGN->task_states, sequence->task_count * sizeof *DESIGN->task_states);
    for (uint32_t i = 0; i < SIM_ARGUMENTS; ++i)
        if (sequence->arguments[i].written)
            zero(DESIGN->written, (sequence->arguments[i].bytes + 63) / 64 * 8);
    run.loaded_at = run.unproven_free = -1;
    for (run.step = 0; run.step < sequence->step_count; ++run.step) {
        run.idle = 0;
        ++DESIGN->clock.ticks[0];
        if (!configure_tasks(run.step, &next_task) || !run_step(&sequence->steps[run.step]))
            return;
    }
    if (run.configured && settle())
        check_written();
}

/* Whether the bytes of two arguments share memory. */
static bool overlap(uint32_t i, uint32_t j) {
    const sim_host_argument *arguments = run.sequence->arguments;
    uintptr_t a = (uintptr_t)run.arguments[i], b = (uintptr_t)run.arguments[j];
    return a && b && a < b + arguments[j].bytes && b < a + arguments[i].bytes;
}

static void run_call(void) {
    for (uint32_t i = 0; i < SIM_ARGUMENTS; ++i)
        for (uint32_t j = 0; j < SIM_ARGUMENTS; ++j)
            if (i != j && run.sequence->arguments[i].written && overlap(i, j) && fail(CODE_CALL)) {
                text_add("%s: %s and %s share memory", run.sequence->name, ARGUMENT_NAMES[i], ARGUMENT_NAMES[j]);
                return;
            }
    run_sequence();
}

int sim_run(uint32_t number, bool again, const void *a, const void *b, void *c, char *message, size_t capacity) {
    static bool busy;
    if (__atomic_exchange_n(&busy, true, __ATOMIC_ACQUIRE)) {
        static const char REFUSAL[] = "a run of this ELF is under way; one at a time";
        for (size_t i = 0; message && i < capacity; ++i)
            message[i] = i + 1 < capacity && i < sizeof REFUSAL - 1 ? REFUSAL[i] : 0;
        return CODE_CALL;
    }
    run.code = 0;
    text.used = 0;
    run.sequence = &DESIGN->sequences[number];
    run.again = again;
    run.arguments[0] = (uint8_t *)(uintptr_t)a;
    run.arguments[1] = (uint8_t *)(uintptr_t)b;
    run.arguments[2] = c;
    run_call();
    /* After a failure the array is in no state to go on from. */
    if (run.code)
        run.configured = false;
    int code = run.code;
    text_give(message, capacity);
    __atomic_store_n(&busy, false, __ATOMIC_RELEASE);
    return code;
}
