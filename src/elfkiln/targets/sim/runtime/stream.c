/* Streams: the DMA channels of a FIFO, which move bytes from one source to every sink as far as both allow. */

static sim_pool *end_pool(const sim_end *end) {
    return end->segments[end->segment].pool;
}

static uint32_t queue_front(const sim_queue *queue) {
    return queue->task[queue->first % SIM_QUEUE];
}

static const sim_task *front_task(const sim_end *end) {
    return &run.sequence->tasks[queue_front(&end->queue)];
}

/* The end of a task's stream at the shim. */
static sim_end *task_end(const sim_task *task) {
    sim_stream *stream = &DESIGN->streams[task->stream];
    if (!task->drains)
        return &stream->source;
    for (uint32_t i = 0; i < stream->sink_count; ++i)
        if (!stream->sinks[i].count)
            return &stream->sinks[i];
    return NULL;
}

static void open_task(sim_stream *stream, sim_end *end) {
    const sim_task *task = front_task(end);
    clock_follow_sequence(&stream->clock, DESIGN->task_states[queue_front(&end->queue)].started_tick);
    cursor_start(&end->cursor, run.arguments[task->argument], &task->pattern);
    end->left = task->pattern.bytes;
    end->open = true;
}

static void open_object(sim_end *end, uint64_t object) {
    const sim_segment *segment = &end->segments[end->segment];
    const sim_pool *pool = segment->pool;
    cursor_start(&end->cursor, pool->objects + (object % pool->depth) * pool->slot_bytes, &segment->pattern);
    end->left = segment->pattern.bytes;
    end->open = true;
}

#ifdef SIM_MORE
static bool spent(const sim_end *end) {
    return end->most && end->begun == end->most;
}
#endif

static bool may_open_source(const sim_end *end) {
    if (!end->count)
        return end->queue.count > 0;
#ifdef SIM_MORE
    if (spent(end))
        return false;
#endif
    const sim_pool *pool = end_pool(end);
    return pool->writer_gave > pool->reader_took;
}

static bool may_open_sink(const sim_end *end) {
    if (!end->count)
        return end->queue.count > 0;
#ifdef SIM_MORE
    if (spent(end))
        return false;
#endif
    const sim_pool *pool = end_pool(end);
    return pool->writer_took - pool->reader_gave < pool->depth;
}

static void open_source(sim_stream *stream) {
    sim_end *end = &stream->source;
    if (!end->count) {
        open_task(stream, end);
        return;
    }
    sim_pool *pool = end_pool(end);
#ifdef SIM_MORE
    ++end->begun;
#endif
    slot_take(&stream->clock, &pool->given, pool->reader_took % pool->depth);
    open_object(end, pool->reader_took++);
}

static void open_sink(sim_stream *stream, sim_end *end) {
    if (!end->count) {
        open_task(stream, end);
        return;
    }
    sim_pool *pool = end_pool(end);
#ifdef SIM_MORE
    ++end->begun;
#endif
    slot_take(&stream->clock, &pool->freed, pool->writer_took % pool->depth);
    pool->filled[pool->writer_took % pool->depth] = 0;
    open_object(end, pool->writer_took++);
}

static void next_segment(sim_end *end) {
    if (++end->segment == end->count)
        end->segment = 0;
}

static void close_task(sim_stream *stream, sim_end *end) {
    uint32_t number = queue_front(&end->queue);
    sim_task_state *state = &DESIGN->task_states[number];
    state->done = true;
    state->done_tick = clock_tick(&stream->clock, stream->part);
    clock_copy(DESIGN->task_ticks + (uint64_t)number * DESIGN->part_count, stream->clock.ticks);
    run.task_done = true;
    ++end->queue.first;
    --end->queue.count;
    end->open = false;
}

static void close_source(sim_stream *stream) {
    sim_end *end = &stream->source;
    sim_pool *pool = end_pool(end);
    if (++end->repeated < stream->repeat) {
        open_object(end, pool->reader_took - 1);
        return;
    }
    end->repeated = 0;
    end->open = false;
    slot_give(&stream->clock, &pool->freed, pool->reader_gave % pool->depth);
    ++pool->reader_gave;
    wake(pool->writer);
    next_segment(end);
}

static void close_sink(sim_stream *stream, sim_end *end) {
    if (!end->count) {
        close_task(stream, end);
        return;
    }
    sim_pool *pool = end_pool(end);
    slot_give(&stream->clock, &pool->given, pool->writer_gave % pool->depth);
    pool->filled[pool->writer_gave % pool->depth] = 1;
    ++pool->writer_gave;
    end->open = false;
    wake(pool->reader);
    next_segment(end);
}

/* Checks the next `count` bytes a task moves against what was written to its argument before. */
static bool check_access(const sim_stream *stream, const sim_end *end, uint64_t count, bool writes) {
    const sim_task *task = front_task(end);
    const sim_host_argument *argument = &run.sequence->arguments[task->argument];
    if (!writes && !argument->written)
        return true;
    int64_t byte = check_bits(end->cursor, count, writes);
    if (byte < 0)
        return true;
    if (fail(CODE_ACCESS)) {
        text_stream(stream);
        uint32_t number = queue_front(&end->queue);
        text_add(", task %d: element %d of %s is %s; the task began in ", (int64_t)number,
                 byte / (int64_t)argument->element_bytes, ARGUMENT_NAMES[task->argument],
                 writes ? "written twice" : "read before it is written");
        text_step(DESIGN->task_states[number].started_at);
    }
    return false;
}

/* Moves `count` bytes, which no end's current object or task exceeds. */
static bool move_bytes(sim_stream *stream, uint64_t count) {
    sim_end *source = &stream->source;
    if (!source->count && !check_access(stream, source, count, false))
        return false;
    for (uint32_t i = 0; i < stream->sink_count; ++i)
        if (!stream->sinks[i].count && !check_access(stream, &stream->sinks[i], count, true))
            return false;
    source->left -= count;
    for (uint32_t i = 0; i < stream->sink_count; ++i)
        stream->sinks[i].left -= count;
    while (count) {
        /* A contiguous view of the next bytes: in place, gathered right into a sink, or gathered aside. */
        sim_end *first = NULL;
        const uint8_t *view;
        uint64_t part = count;
        if (cursor_run(&source->cursor) >= part) {
            view = cursor_here(&source->cursor);
            cursor_skip(&source->cursor, part);
        } else {
            uint8_t *aside = DESIGN->staging;
            for (uint32_t i = 0; i < stream->sink_count && !first; ++i)
                if (cursor_run(&stream->sinks[i].cursor) >= part)
                    first = &stream->sinks[i];
            if (first)
                aside = cursor_here(&first->cursor);
            else if (part > DESIGN->staging_bytes)
                part = DESIGN->staging_bytes;
            gather(aside, &source->cursor, part);
            if (first)
                cursor_skip(&first->cursor, part);
            view = aside;
        }
        for (uint32_t i = 0; i < stream->sink_count; ++i)
            if (&stream->sinks[i] != first)
                scatter(&stream->sinks[i].cursor, view, part);
        count -= part;
    }
    return true;
}

/* Runs a stream until its source is empty or a sink has no room. */
static void run_stream(sim_stream *stream) {
    sim_end *source = &stream->source;
    stream->waits = SIM_RUNS;
    for (;;) {
        if (!source->open) {
            if (!may_open_source(source)) {
                stream->waits = SIM_WAITS_SOURCE;
                return;
            }
            open_source(stream);
        }
        /* A broadcast needs room at every consumer before any of them gets a byte. */
        for (uint32_t i = 0; i < stream->sink_count; ++i)
            if (!stream->sinks[i].open && !may_open_sink(&stream->sinks[i])) {
                stream->waits = SIM_WAITS_SINK;
                stream->waits_sink = (uint16_t)i;
                return;
            }
        uint64_t count = source->left;
        bool shim = !source->count;
        for (uint32_t i = 0; i < stream->sink_count; ++i) {
            sim_end *sink = &stream->sinks[i];
            if (!sink->open)
                open_sink(stream, sink);
            if (sink->left < count)
                count = sink->left;
            shim |= !sink->count;
        }
        if (!move_bytes(stream, count))
            return;
        run.idle = shim ? 0 : run.idle + 1;
        /* Who has the last byte of a fill knows that the fill is done, so its end is noted first. */
        if (!source->left && !source->count)
            close_task(stream, source);
        for (uint32_t i = 0; i < stream->sink_count; ++i)
            if (!stream->sinks[i].left)
                close_sink(stream, &stream->sinks[i]);
        if (!source->left && source->count)
            close_source(stream);
        /* The sequence may wait for this task: it goes on before anything else does, which shows the most races. */
        if (run.task_done) {
            wake_stream(stream);
            return;
        }
    }
}
