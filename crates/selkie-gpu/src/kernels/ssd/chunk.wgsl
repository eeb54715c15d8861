// The steps of CHUNK rows, and what they add up to from the chunk's start on. Complex states are seen from a plane that turns with
// them, where they only decay: B enters and C reads turned back by the angle since the start.
const CHUNK = 64u;
const THREADS = 256u;
var<workgroup> decays: array<f32, CHUNK>; // log decay up to a row, its own included
var<workgroup> inputs: array<vec2<f32>, CHUNK>; // what B is multiplied by; 0 past the last row
#if COMPLEX
var<workgroup> angles: array<f32, CHUNK>; // up to a row, its own included, within a turn
var<workgroup> turns: array<vec2<f32>, CHUNK>; // e^(-i angle): what C is multiplied by
#endif

fn sum_up(thread: u32, head: u32, first: u32) {
    var factors = Factors(0.0, 0.0, vec2<f32>());
    if thread < CHUNK && first + thread < step.own {
        factors = step_of(first + thread, head);
    }
    if thread < CHUNK {
        decays[thread] = factors.log_decay;
#if COMPLEX
        angles[thread] = factors.angle;
#endif
    }
    workgroupBarrier();
    for (var back = 1u; back < CHUNK; back <<= 1u) {
        var decay = 0.0;
        var angle = 0.0;
        if thread < CHUNK && thread >= back {
            decay = decays[thread - back];
#if COMPLEX
            angle = angles[thread - back];
#endif
        }
        workgroupBarrier();
        if thread < CHUNK {
            decays[thread] += decay;
#if COMPLEX
            angles[thread] = less_turns(angles[thread] + angle);
#endif
        }
        workgroupBarrier();
    }
    if thread < CHUNK {
#if COMPLEX
        let turn = cos_sin(-angles[thread]);
        turns[thread] = turn;
        inputs[thread] = complex_product(turn, factors.input);
#else
        inputs[thread] = factors.input;
#endif
    }
    workgroupBarrier();
}

// Four values of a row's x, B and C: nothing past the sequence's last row, nor past their end.
fn x_quad(row: u32, head: u32, i: u32) -> vec4<f32> {
    if row >= step.own || i >= p.head_dim {
        return vec4<f32>();
    }
    return xbc_quad(x_start(row, head), i, p.head_dim);
}

fn b_quad(row: u32, head: u32, i: u32) -> vec4<f32> {
    if row >= step.own || i >= p.width {
        return vec4<f32>();
    }
    return quad_product(xbc_quad(b_start(row, head), i, p.width), inputs[row % CHUNK]);
}

fn c_quad(row: u32, head: u32, i: u32) -> vec4<f32> {
    if row >= step.own || i >= p.width {
        return vec4<f32>();
    }
    let quad = xbc_quad(b_start(row, head) + p.n_groups * p.width, i, p.width);
#if COMPLEX
    return quad_product(quad, turns[row % CHUNK]);
#else
    return quad;
#endif
}
