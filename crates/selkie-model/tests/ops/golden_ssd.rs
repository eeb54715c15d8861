//! Mamba-2's duality, by steps and by chunks, against the golden file.

use selkie_model::{reference::ops::*, spec::Activation};

use crate::{
    golden_scan::sequences,
    support::{Golden, near, rows_of},
};

const BOUND: f64 = 3e-7;

#[test]
fn by_steps_and_by_chunks() {
    let golden = Golden::open("ssd");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, length, n_heads, head_dim]: [usize; 4] = golden.shape(&name("in.x")).try_into().expect("four axes");
        let [n_groups, d_state]: [usize; 2] = golden.shape(&name("in.B"))[2..].try_into().expect("two axes");
        let parameters = golden.parameters(&case);
        assert_eq!(parameters["dt_softplus"], true);
        let limit = |i: usize, none: f32| parameters["dt_limit"][i].as_f64().map_or(none, |v| v as f32);
        let shape = SsdShape {
            n_heads,
            head_dim,
            n_groups,
            d_state,
            dt_min: limit(0, 0.0),
            dt_max: limit(1, f32::INFINITY),
            scale_input: true,
        };
        let chunk = parameters["chunk_size"].as_u64().expect("a length") as usize;
        let (a, dt_bias) = (golden.get(&name("in.A")), golden.find(&name("in.dt_bias")));
        let d = golden.find(&name("in.D")).unwrap_or_else(|| vec![0.0; n_heads]);
        for entry in 0..batch {
            let [x, b, c, dt] = ["in.x", "in.B", "in.C", "in.dt"].map(|what| golden.entry(&name(what), entry));
            let xbc = join_heads(
                &join_heads(&x, &b, n_heads * head_dim, n_groups * d_state),
                &c,
                n_heads * head_dim + n_groups * d_state,
                n_groups * d_state,
            );
            let width = xbc.len() / length;
            let (mut y, mut y_chunked) = (vec![], vec![]);
            for (i, rows) in sequences(&golden, &case, length).into_iter().enumerate() {
                let (xbc, dt) = (rows_of(&xbc, width, &rows), rows_of(&dt, n_heads, &rows));
                let mut state = vec![0.0; n_heads * head_dim * d_state];
                if golden.has(&name("in.initial_state")) {
                    state = golden.entry(&name("in.initial_state"), entry);
                }
                let mut state_chunked = state.clone();
                y.extend(ssd(xbc, dt, &a, &d, dt_bias.as_deref(), &shape, &mut state));
                y_chunked.extend(ssd_chunked(xbc, dt, &a, &d, dt_bias.as_deref(), &shape, &mut state_chunked, chunk));
                let last = match golden.has(&name("out.last_states")) {
                    true => golden.entry(&name("out.last_states"), i),
                    false => golden.entry(&name("out.last_state"), entry),
                };
                near(&state, &last, BOUND, &name("state"));
                near(&state_chunked, &last, BOUND, &name("state of chunks"));
            }
            let wanted = golden.entry(&name("out.y"), entry);
            for (y, how) in [(y, "steps"), (y_chunked, "chunks")] {
                let gated = golden.has(&name("in.z"));
                let y = if gated { glu(&golden.entry(&name("in.z"), entry), &y, Activation::Silu) } else { y };
                near(&y, &wanted, BOUND, &name(how));
            }
        }
    }
}
