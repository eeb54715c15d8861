// Writes a chosen id where the next token's pass reads it, and whether the sequence has ended into that pass's step. The
// including kernel has `ids` in its parameters, where ids start in the buffer of what passes are told.
const STEP_WORDS = 64u;
const STEP_DONE = 5u;

fn deliver(id: u32) {
    inputs[p.ids + choice.token + 1u] = id;
    var done = inputs[choice.token * STEP_WORDS + STEP_DONE];
    for (var i = 0u; i < choice.stops; i++) {
        done |= select(0u, 1u, choice.stop[i / 4u][i % 4u] == id);
    }
    inputs[(choice.token + 1u) * STEP_WORDS + STEP_DONE] = done;
}
