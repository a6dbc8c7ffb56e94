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

/*
 * A stream's pattern over an object that is rows in the host's memory, or NULL when there is none. The last one is kept:
 * a task's objects have rows alike.
 */
static const sim_pattern *follow_rows(const sim_stream *stream, const sim_pattern *pattern, const sim_place *place) {
    sim_rows *rows = &DESIGN->rows[stream - DESIGN->streams];
    if (rows->of == pattern && rows->run == place->run && rows->stride == place->stride)
        return &rows->over;
    rows->of = NULL;
    if (!pattern_over_rows(&rows->over, pattern, place->run, place->stride))
        return NULL;
    rows->of = pattern;
    rows->run = place->run;
    rows->stride = place->stride;
    return &rows->over;
}

static void open_object(const sim_stream *stream, sim_end *end, uint64_t object) {
    const sim_segment *segment = &end->segments[end->segment];
    const sim_pattern *pattern = &segment->pattern;
    sim_place *place = place_of(segment->pool, object);
    if (place->run) {
        const sim_pattern *over = follow_rows(stream, pattern, place);
        if (over)
            pattern = over;
        else
            place_own(segment->pool, place);
    }
    cursor_start(&end->cursor, place->bytes, pattern);
    end->left = pattern->bytes;
    end->open = true;
}

/* Opens the sink's end of an object. Where its bytes are shows with the first of them. */
static void open_room(sim_end *end) {
    const sim_pattern *pattern = &end->segments[end->segment].pattern;
    cursor_start(&end->cursor, NULL, pattern);
    end->left = pattern->bytes;
    end->open = true;
    end->placed = end->shared = false;
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
    slot_take(&stream->clock, &pool->given, slot_of(pool, pool->reader_took));
    open_object(stream, end, pool->reader_took++);
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
    slot_take(&stream->clock, &pool->freed, slot_of(pool, pool->writer_took));
    pool->filled[slot_of(pool, pool->writer_took)] = 0;
    ++pool->writer_took;
    open_room(end);
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
        open_object(stream, end, pool->reader_took - 1);
        return;
    }
    end->repeated = 0;
    end->open = false;
    slot_give(&stream->clock, &pool->freed, slot_of(pool, pool->reader_gave));
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
    slot_give(&stream->clock, &pool->given, slot_of(pool, pool->writer_gave));
    pool->filled[slot_of(pool, pool->writer_gave)] = 1;
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

/* Whether the next `count` bytes are an object of a sink as it lies in memory, from its first byte to its last. */
static bool whole_object(const sim_end *sink, uint64_t count) {
    if (!sink->count || sink->placed)
        return false;
    const sim_segment *segment = &sink->segments[sink->segment];
    const sim_pool *pool = segment->pool;
    return !segment->pattern.dims && count == pool->object_bytes && !pool->fixed;
}

/* The place of the object that a sink receives now. */
static sim_place *sink_place(const sim_end *sink) {
    const sim_pool *pool = end_pool(sink);
    return place_of(pool, pool->writer_took - 1);
}

/*
 * Asks for the rows of an object in the host's memory, for the second cache. Who reads them comes to them some objects
 * later, as behind a DMA that runs ahead, and would wait for each of them otherwise.
 */
static void prefetch_rows(sim_place place, uint64_t bytes) {
    for (uint64_t row = 0; row < bytes; row += place.run, place.bytes += place.stride)
        for (uint64_t at = 0; at < place.run; at += 64)
            __builtin_prefetch(place.bytes + at, 0, 2);
}

static __attribute__((noinline)) void share(sim_end *sink, sim_place with) {
    if (with.run)
        prefetch_rows(with, end_pool(sink)->object_bytes);
    place_share(end_pool(sink), sink_place(sink), with);
    sink->placed = sink->shared = true;
}

/*
 * Where the next `count` bytes of a source are as an object may have them: `bytes` NULL where they are so nowhere. The
 * host's memory is such a place while the sequence does not write it. When a run ends nothing is left on the array,
 * apart from what few designs keep there (SIM_MORE), so no slot has its object there afterwards.
 */
static sim_place view_of(const sim_end *source, uint64_t count) {
    const sim_cursor *cursor = &source->cursor;
    const sim_pattern *pattern = cursor->pattern;
    uint8_t *here = cursor_here(cursor);
    if (source->count) {
        const sim_pool *pool = end_pool(source);
        sim_place *place = place_of(pool, pool->reader_took - 1);
        if (pool->fixed || place->run || cursor_run(cursor) < count || (uintptr_t)here % OBJECT_ALIGNMENT)
            return (sim_place){0};
        return (sim_place){here, place->block, 0, 0};
    }
#ifdef SIM_MORE
    return (sim_place){0};
#else
    if (run.sequence->arguments[front_task(source)->argument].written)
        return (sim_place){0};
    if (cursor_run(cursor) >= count)
        return (uintptr_t)here % OBJECT_ALIGNMENT ? (sim_place){0} : (sim_place){here, NULL, 0, 0};
    if (cursor->in_run || !pattern->dims || count % pattern->run)
        return (sim_place){0};
    uint32_t last = pattern->dims - 1;
    if (count / pattern->run > pattern->dim[last].size - cursor->index[last])
        return (sim_place){0};
    return (sim_place){here, NULL, pattern->run, pattern->dim[last].stride};
#endif
}

/* Whether a pool's slots may have objects at a place: in blocks of their size, as rows only for a stream to take up. */
static bool may_share(const sim_pool *pool, sim_place with, const sim_pool *owner) {
    if (with.run)
        return pool->reader >= DESIGN->core_count && pool->reader != SIM_NONE;
    return !with.block || pool->peer == owner->peer;
}

/* Gives each sink's object a place. Returns how many of the sinks do not have the next `count` bytes by that. */
static __attribute__((noinline)) uint32_t place_sinks(sim_stream *stream, uint64_t count) {
    sim_end *source = &stream->source, *lead = NULL;
    sim_place view = {0};
    bool viewed = false;
    uint32_t without = 0;
    for (uint32_t i = 0; i < stream->sink_count; ++i) {
        sim_end *sink = &stream->sinks[i];
        if (whole_object(sink, count)) {
            if (!viewed) {
                view = view_of(source, count);
                viewed = true;
            }
            if (view.bytes && may_share(end_pool(sink), view, source->count ? end_pool(source) : NULL)) {
                share(sink, view);
                continue;
            }
            /* The first to get the bytes has them for the others, too. */
            if (lead && end_pool(lead)->peer == end_pool(sink)->peer) {
                share(sink, *sink_place(lead));
                continue;
            }
            lead = sink;
        }
        if (sink->count && !sink->placed) {
            sim_place *place = sink_place(sink);
            place_fresh(end_pool(sink), place);
            sink->cursor.base = place->bytes;
            sink->placed = true;
        }
        ++without;
    }
    return without;
}

/* Moves the cursor on by `count` bytes that are within a run, or whole runs of one loop. */
static void skip_view(sim_cursor *cursor, uint64_t count) {
    int64_t stride;
    if (cursor_run(cursor) >= count)
        cursor_skip(cursor, count);
    else
        cursor_runs(cursor, count, &stride);
}

/* Moves `count` bytes, which no end's current object or task exceeds. */
static __attribute__((noinline)) bool move_bytes(sim_stream *stream, uint64_t count) {
    sim_end *source = &stream->source;
    if (!source->count && !check_access(stream, source, count, false))
        return false;
    for (uint32_t i = 0; i < stream->sink_count; ++i)
        if (!stream->sinks[i].count && !check_access(stream, &stream->sinks[i], count, true))
            return false;
    source->left -= count;
    for (uint32_t i = 0; i < stream->sink_count; ++i)
        stream->sinks[i].left -= count;
    if (!place_sinks(stream, count)) {
        /* All have the source's bytes where they are; or one of them would be without. */
        skip_view(&source->cursor, count);
        return true;
    }
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
                if (!stream->sinks[i].shared && cursor_run(&stream->sinks[i].cursor) >= part)
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
            if (&stream->sinks[i] != first && !stream->sinks[i].shared)
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
