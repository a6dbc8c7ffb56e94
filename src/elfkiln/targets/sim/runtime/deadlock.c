/* The report of a deadlock: follows who waits for whom, from the task the sequence awaits to what holds them all up. */

enum { MOST_REPORTED = 6 };

/* The agent that could end the wait of a core, or SIM_NONE. */
static uint16_t awaited_by_core(const sim_core *core) {
    if (core->waits != SIM_WAITS_POOL)
        return SIM_NONE;
    const sim_port *port = &core->ports[core->waits_index];
    return port->consume ? port->pool->writer : port->pool->reader;
}

static uint16_t awaited_by_stream(const sim_stream *stream) {
    if (stream->waits == SIM_WAITS_SOURCE && stream->source.count)
        return end_pool(&stream->source)->writer;
    if (stream->waits == SIM_WAITS_SINK && stream->sinks[stream->waits_sink].count)
        return end_pool(&stream->sinks[stream->waits_sink])->reader;
    return SIM_NONE;
}

static uint16_t awaited_by(uint16_t agent) {
    return agent < DESIGN->core_count ? awaited_by_core(&DESIGN->cores[agent])
                                      : awaited_by_stream(&DESIGN->streams[agent - DESIGN->core_count]);
}

static void report_core(const sim_core *core) {
    if (core->waits == SIM_ENDED) {
        text_add("the program of %s has ended", core->tile);
        return;
    }
    text_core(core);
    if (core->waits == SIM_WAITS_LOCK) {
        const sim_lock *lock = &DESIGN->locks[core->waits_index];
        text_add(": %s holds %d", lock->name, lock->value);
    } else if (core->waits == SIM_WAITS_POOL) {
        const sim_port *port = &core->ports[core->waits_index];
        const sim_pool *pool = port->pool;
        if (port->consume)
            text_add(": %d ready", (int64_t)(pool->writer_gave - pool->reader_took));
        else
            text_add(": %d of %d free", (int64_t)(pool->depth - (pool->writer_took - pool->reader_gave)),
                     (int64_t)pool->depth);
        if ((port->consume ? pool->writer : pool->reader) == SIM_NONE)
            text_string(port->consume ? ", and nothing ever writes one" : ", and nothing ever reads one");
    }
}

static void report_stream(const sim_stream *stream) {
    text_stream(stream);
    if (stream->waits == SIM_WAITS_SOURCE) {
        if (!stream->source.count) {
            text_string(": no task is queued to fill it");
            for (uint32_t i = 0; i < stream->sink_count; ++i) {
                const sim_end *sink = &stream->sinks[i];
                if (!sink->open || !sink->count || sink->left == sink->cursor.pattern->bytes)
                    continue;
                text_add(", and an object at %s has %d of its %d bytes", sink->tile, in_task_bytes(sink),
                         (int64_t)sink->cursor.pattern->bytes);
                return;
            }
            return;
        }
        const sim_pool *pool = end_pool(&stream->source);
#ifdef SIM_MORE
        if (spent(&stream->source)) {
            text_add(": its iter_count is spent, after %d objects", (int64_t)stream->source.most);
            return;
        }
#endif
        text_add(": no object of %s at %s to send", pool->name, pool->tile);
        if (pool->writer == SIM_NONE)
            text_string(", and nothing ever writes one");
    } else if (stream->waits == SIM_WAITS_SINK) {
        const sim_end *sink = &stream->sinks[stream->waits_sink];
        if (!sink->count) {
            text_string(": no task is queued to drain it");
            return;
        }
        const sim_pool *pool = end_pool(sink);
#ifdef SIM_MORE
        if (spent(sink)) {
            text_add(": its iter_count at %s is spent, after %d objects", sink->tile, (int64_t)sink->most);
            return;
        }
#endif
        text_add(": no room at %s, where %s has ", pool->tile, pool->name);
        text_objects(pool->depth);
        if (pool->reader_took > pool->reader_gave)
            text_add(", %d of them taken and not released", (int64_t)(pool->reader_took - pool->reader_gave));
        if (pool->reader == SIM_NONE)
            text_string(", and nothing ever reads one");
    }
}

static void report_agent(uint16_t agent) {
    if (agent < DESIGN->core_count)
        report_core(&DESIGN->cores[agent]);
    else
        report_stream(&DESIGN->streams[agent - DESIGN->core_count]);
}

/* Ends the run: the sequence awaits `task` and no agent can go on. What holds it up is reported first. */
static void fail_deadlock(const sim_task *task) {
    if (!fail_step(CODE_DEADLOCK))
        return;
    const sim_end *end = task_end(task);
    bool front = end->open && front_task(end) == task;
    text_add("deadlock, %d of %d bytes moved; ", front ? in_task_bytes(end) : 0, (int64_t)task->pattern.bytes);
    /* Nothing is ready, so the ready queue has room for the chain: an agent comes in it once at most. */
    uint16_t *chain = DESIGN->ready;
    uint32_t count = 0;
    bool circle = false;
    for (uint16_t agent = (uint16_t)(DESIGN->core_count + task->stream); agent != SIM_NONE && !circle;
         agent = awaited_by(agent)) {
        for (uint32_t i = 0; i < count; ++i)
            circle |= chain[i] == agent;
        if (!circle)
            chain[count++] = agent;
    }
    text_string(circle ? "waits go round: " : "it begins with ");
    for (uint32_t i = 0; i < count && i < MOST_REPORTED; ++i) {
        if (i)
            text_string("; then ");
        report_agent(chain[count - 1 - i]);
    }
    if (count > MOST_REPORTED)
        text_add("; and %d more", (int64_t)count - MOST_REPORTED);
}
