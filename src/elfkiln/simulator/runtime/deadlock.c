/* The report of a deadlock: follows who waits for whom, from the task the sequence awaits to what started it. */

enum { MOST_REPORTED = 8 };

static void report_core(const sim_core *core, uint16_t *next) {
    text_core(core);
    if (core->waits == SIM_ENDED) {
        text_add(": the program of %s has ended", core->tile);
    } else if (core->waits == SIM_WAITS_LOCK) {
        const sim_lock *lock = &DESIGN->locks[core->waits_index];
        text_add(": %s holds %d", lock->name, lock->value);
    } else if (core->waits == SIM_WAITS_POOL) {
        const sim_port *port = &core->ports[core->waits_index];
        const sim_pool *pool = port->pool;
        if (port->consume) {
            text_add(": %d ready", (int64_t)(pool->writer_gave - pool->reader_took));
            *next = pool->writer;
        } else {
            text_add(": %d of %d free", (int64_t)(pool->depth - (pool->writer_took - pool->reader_gave)),
                     (int64_t)pool->depth);
            *next = pool->reader;
        }
    }
}

static void report_stream(const sim_stream *stream, uint16_t *next) {
    text_stream(stream);
    if (stream->waits == SIM_WAITS_SOURCE) {
        if (!stream->source.count) {
            text_string(": no task is queued to fill it");
            return;
        }
        const sim_pool *pool = end_pool(&stream->source);
        text_add(": no object of %s at %s to send", pool->name, pool->tile);
        if (pool->writer == SIM_NONE)
            text_string(", and nothing ever writes one");
        *next = pool->writer;
    } else if (stream->waits == SIM_WAITS_SINK) {
        const sim_end *sink = &stream->sinks[stream->waits_sink];
        if (!sink->count) {
            text_string(": no task is queued to drain it");
            return;
        }
        const sim_pool *pool = end_pool(sink);
        text_add(": no room at %s, all %d objects of %s are taken", pool->tile, (int64_t)pool->depth, pool->name);
        if (pool->reader == SIM_NONE)
            text_string(", and nothing ever reads one");
        *next = pool->reader;
    }
}

/* Appends what agent `agent` waits for and returns the agent that could end that, or SIM_NONE. */
static uint16_t report_agent(uint16_t agent) {
    uint16_t next = SIM_NONE;
    if (agent < DESIGN->core_count)
        report_core(&DESIGN->cores[agent], &next);
    else
        report_stream(&DESIGN->streams[agent - DESIGN->core_count], &next);
    return next;
}

/* Ends the run: the sequence awaits `task` and no agent can go on. */
static void fail_deadlock(const sim_task *task) {
    if (!fail_step(CODE_DEADLOCK))
        return;
    const sim_stream *stream = &DESIGN->streams[task->stream];
    const sim_end *end = &stream->source;
    for (uint32_t i = 0; task->drains && i < stream->sink_count; ++i)
        if (!stream->sinks[i].count)
            end = &stream->sinks[i];
    bool front = end->open && front_task(end) == task;
    text_add("deadlock, %d of %d bytes moved; ", front ? in_task_bytes(end) : 0, (int64_t)task->pattern.bytes);
    uint16_t seen[MOST_REPORTED];
    uint16_t agent = (uint16_t)(DESIGN->core_count + task->stream);
    for (uint32_t count = 0; agent != SIM_NONE; ++count) {
        for (uint32_t i = 0; i < count; ++i)
            if (seen[i] == agent) {
                text_string("; which is where this began");
                return;
            }
        if (count == MOST_REPORTED) {
            text_string("; and so on");
            return;
        }
        if (count)
            text_string("; ");
        seen[count] = agent;
        agent = report_agent(agent);
    }
}
