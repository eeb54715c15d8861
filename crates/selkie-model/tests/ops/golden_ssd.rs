//! Mamba-2's duality, by steps and by chunks, against the golden file.

use selkie_model::{reference::ops::*, spec::Activation};

use crate::{
    golden_scan::sequences,
    support::{Gathered, Golden, columns, near, rows_of},
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
        let packed = golden.has(&name("out.last_states"));
        let mut gathered = Gathered::default();
        for entry in 0..batch {
            let [x, b, c, dt, dy] =
                ["in.x", "in.B", "in.C", "in.dt", "grad_out.y"].map(|what| golden.entry(&name(what), entry));
            let (x_width, bc_width) = (n_heads * head_dim, n_groups * d_state);
            let xbc = join_heads(&join_heads(&x, &b, x_width, bc_width), &c, x_width + bc_width, bc_width);
            let width = x_width + 2 * bc_width;
            let gate = golden.has(&name("in.z")).then(|| golden.entry(&name("in.z"), entry));
            let (mut y, mut y_chunked, mut parts) = (vec![], vec![], vec![]);
            for (i, range) in sequences(&golden, &case, length).into_iter().enumerate() {
                let states = |what: &str| match packed {
                    true => golden.entry(&name(&format!("{what}s")), i),
                    false => golden.entry(&name(what), entry),
                };
                let (xbc, dt) = (rows_of(&xbc, width, &range), rows_of(&dt, n_heads, &range));
                let begin = golden.has(&name("in.initial_state"));
                let before = if begin { states("in.initial_state") } else { vec![0.0; x_width * d_state] };
                let (mut state, mut state_chunked) = (before.clone(), before.clone());
                y.extend(ssd(xbc, dt, &a, &d, dt_bias.as_deref(), &shape, &mut state));
                y_chunked.extend(ssd_chunked(xbc, dt, &a, &d, dt_bias.as_deref(), &shape, &mut state_chunked, chunk));
                near(&state, &states("out.last_state"), BOUND, &name("state"));
                near(&state_chunked, &states("out.last_state"), BOUND, &name("state of chunks"));
                parts.push((range, before, states("grad_out.last_state")));
            }
            let gated = |y: &[f64]| gate.as_ref().map_or(y.to_vec(), |gate| glu(gate, y, Activation::Silu));
            for (y, how) in [(&y, "steps"), (&y_chunked, "chunks")] {
                near(&gated(y), &golden.entry(&name("out.y"), entry), BOUND, &name(how));
            }

            let (dz, dy) = match &gate {
                Some(gate) => glu_backward(gate, &y, Activation::Silu, &dy),
                None => (vec![], dy),
            };
            gathered.push("z", &dz);
            for (range, before, dstate) in &parts {
                let (xbc, dt) = (rows_of(&xbc, width, range), rows_of(&dt, n_heads, range));
                let dy = rows_of(&dy, x_width, range);
                let g = ssd_backward(xbc, dt, &a, &d, dt_bias.as_deref(), &shape, before, dy, dstate);
                let (x, b) = (0..x_width, x_width..x_width + bc_width);
                for (what, own) in [("x", x), ("B", b.clone()), ("C", b.end..width)] {
                    gathered.push(what, &columns(&g.xbc, width, own));
                }
                gathered.push("dt", &g.dt);
                gathered.push("initial_state", &g.state);
                for (what, values) in [("A", &g.a), ("D", &g.d), ("dt_bias", &g.dt_bias)] {
                    gathered.add(what, values);
                }
            }
        }
        gathered.check(&golden, &case, BOUND);
    }
}
