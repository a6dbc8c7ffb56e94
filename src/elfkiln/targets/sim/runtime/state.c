/* The state of the one run a loaded ELF may have at a time, and of the array between runs. */

/* What an entry returns; 0 is success. */
enum {
    CODE_CALL = 1,     /* the entry may not be called so, or not now */
    CODE_DESIGN = 2,   /* the design cannot be loaded */
    CODE_SEQUENCE = 3, /* a step of the sequence is a misuse */
    CODE_CORE = 4,     /* a statement of a core is a misuse */
    CODE_ACCESS = 5,   /* an element written twice, or read before it is written */
    CODE_KERNEL = 6,   /* a microkernel broke a rule of the array */
    CODE_DEADLOCK = 7, /* nothing can go on, or nothing comes of it */
    CODE_LEFT = 8,     /* the sequence ended and left something undone */
};

/*
 * Work units without a byte at a shim or a step of the sequence, after which the run counts as one that never ends.
 * A kernel call is KERNEL_WORK units, so the bound is a million calls: seconds, and far above what a real design does.
 */
enum { MOST_IDLE = 1 << 26, KERNEL_WORK = 64 };

static struct {
    bool configured;
    bool again;
    int code;
    const sim_sequence *sequence;
    uint32_t step;
    int64_t loaded_at;
    int64_t unproven_free;
    uint8_t *arguments[SIM_ARGUMENTS];
    uint32_t idle;
    uint32_t ready_first;
    uint32_t ready_count;
    bool task_done;
    sim_core *core;
} run;

#define DESIGN (&sim_design)

/* The slot of an object. Depths are powers of two most often, and a division is the dearest step of an acquire. */
static inline uint64_t slot_of(const sim_pool *pool, uint64_t object) {
    uint64_t last = pool->depth - 1;
    return pool->depth & last ? object % pool->depth : object & last;
}

static uint32_t agent_count(void) {
    return (uint32_t)DESIGN->core_count + DESIGN->stream_count;
}

/* Puts an agent at the end of the ready queue, once. */
static void wake(uint32_t agent) {
    if (agent == SIM_NONE)
        return;
    bool *queued = agent < DESIGN->core_count ? &DESIGN->cores[agent].queued
                                              : &DESIGN->streams[agent - DESIGN->core_count].queued;
    if (*queued)
        return;
    *queued = true;
    uint32_t count = agent_count();
    DESIGN->ready[(run.ready_first + run.ready_count++) % count] = (uint16_t)agent;
}

static void wake_stream(const sim_stream *stream) {
    wake((uint32_t)(DESIGN->core_count + (stream - DESIGN->streams)));
}

/* Begins a failure's line: true the first time, so that what happened first is what is reported. */
static bool fail(int code) {
    if (run.code)
        return false;
    run.code = code;
    text.used = 0;
    return true;
}

static const char *const ARGUMENT_NAMES[SIM_ARGUMENTS] = {"A", "B", "C"};

/* Appends e.g. `main_seq step 14 (await task 4, which drains C_0)`. */
static void text_step_of(const sim_sequence *sequence, uint32_t number) {
    const sim_step *step = &sequence->steps[number];
    text_add("%s step %d (", sequence->name, (int64_t)number);
    switch (step->kind) {
    case SIM_LOAD_PDI:
        text_string("load_pdi");
        break;
    case SIM_START:
    case SIM_AWAIT:
    case SIM_FREE: {
        const sim_task *task = &sequence->tasks[step->index];
        text_add("%s task %d, which %s %s",
                 step->kind == SIM_START   ? "start"
                 : step->kind == SIM_AWAIT ? "await"
                                           : "free",
                 (int64_t)step->index, task->drains ? "drains" : "fills", task->fifo);
        break;
    }
    case SIM_RTP_WRITE:
        text_add("write element %d", (int64_t)step->element);
        if (!step->fault)
            text_add(" of %s at %s", DESIGN->buffers[step->index].name, DESIGN->buffers[step->index].tile);
        break;
    case SIM_SET_LOCK:
        text_string("set");
        if (!step->fault)
            text_add(" %s at %s", DESIGN->locks[step->index].name, DESIGN->locks[step->index].tile);
        break;
    }
    text_char(')');
}

static void text_step(uint32_t number) {
    text_step_of(run.sequence, number);
}

/* Begins a failure at the sequence's current step. */
static bool fail_step(int code) {
    if (!fail(code))
        return false;
    text_step(run.step);
    text_string(": ");
    return true;
}

/* Appends e.g. `core(0,2) step 3 (acquire 1 of A_0 to consume)`. */
static void text_statement(const sim_core *core, uint32_t step) {
    const sim_statement *s = &core->statements[step];
    text_add("%s step %d (", core->tile, (int64_t)step);
    switch (s->kind) {
    case SIM_ACQUIRE:
    case SIM_RELEASE:
        text_add("%s %d of %s to %s", s->kind == SIM_ACQUIRE ? "acquire" : "release", (int64_t)s->count,
                 core->ports[s->index].fifo, core->ports[s->index].consume ? "consume" : "produce");
        break;
    case SIM_CALL:
        text_add("call %s", DESIGN->kernels[s->index].name);
        break;
    case SIM_LOAD:
        text_add("load from %s", DESIGN->buffers[core->buffers[s->index]].name);
        break;
#ifdef SIM_MORE
    case SIM_STORE:
        text_add("store to %s", DESIGN->buffers[core->buffers[s->index]].name);
        break;
#endif
    case SIM_LOCK:
        text_add("%s %s", s->action == SIM_LOCK_RELEASE ? "release" : "acquire",
                 DESIGN->locks[core->locks[s->index]].name);
        break;
    case SIM_LOOP:
        text_string("loop");
        break;
    }
    text_char(')');
}

/* Appends the same of a core's current statement, with the indices of its loops: `..., turn 0.17`. */
static void text_core(const sim_core *core) {
    const sim_statement *s = &core->statements[core->step];
    text_statement(core, core->step);
    for (uint32_t i = 0; i < s->loop_count; ++i)
        text_add(i ? ".%d" : ", turn %d", core->index[s->loops[i]]);
}

/* Begins a failure at a core's current statement. */
static bool fail_core(const sim_core *core, int code) {
    if (!fail(code))
        return false;
    text_core(core);
    text_string(": ");
    return true;
}

/* Appends e.g. `A_0 (shim(0,0) to core(0,2) and 7 more)`. */
static void text_stream(const sim_stream *stream) {
    text_add("%s (%s to %s", stream->name, stream->source.tile, stream->sinks[0].tile);
    if (stream->sink_count > 1)
        text_add(" and %d more", (int64_t)stream->sink_count - 1);
    text_char(')');
}

static int64_t in_task_bytes(const sim_end *end) {
    return (int64_t)(end->cursor.pattern->bytes - end->left);
}
