// Searching bins, three to a thread, for the one in which a sum is reached.
struct Found {
    bin: u32, // NONE: nowhere
    before: Sum, // of the bins before it
    inside: Sum,
}
var<workgroup> scanned: array<Sum, THREADS>;
var<workgroup> found: Found;
// The thread's bins, and the sum of those before them.
var<private> own: array<Sum, 3>;
var<private> before: Sum;

// Makes `before`.
fn scan(thread: u32) {
    var sum = plus(plus(own[0], own[1]), own[2]);
    scanned[thread] = sum;
    workgroupBarrier();
    for (var by = 1u; by < THREADS; by <<= 1u) {
        if thread >= by {
            sum = plus(sum, scanned[thread - by]);
        }
        workgroupBarrier();
        scanned[thread] = sum;
        workgroupBarrier();
    }
    before = Sum(0u, 0u, 0u);
    if thread > 0u {
        before = scanned[thread - 1u];
    }
    workgroupBarrier();
}

fn find(thread: u32, aim: Sum) -> Found {
    if thread == 0u {
        found.bin = NONE;
    }
    workgroupBarrier();
    var sum = before;
    for (var i = 0u; i < 3u; i++) {
        let next = plus(sum, own[i]);
        if !reaches(sum, aim) && reaches(next, aim) {
            found = Found(3u * thread + i, sum, own[i]);
        }
        sum = next;
    }
    return workgroupUniformLoad(&found);
}

// Where top-k and top-p cut: so many tokens, or so much of the whole mass.
fn limit() -> Sum {
    let most = share(Sum(0u, tallied(1u), tallied(2u)), choice.top_p);
    let all = choice.whole != 0u;
    return Sum(choice.top_k, select(most.low, NONE, all), select(most.high, NONE, all));
}

// What they leave.
struct Kept {
    all: Sum, // of all bins
    cut: Found, // where they cut
}

fn kept(thread: u32) -> Kept {
    for (var i = 0u; i < 3u; i++) {
        let at = 4u + 3u * (3u * thread + i);
        own[i] = Sum(tallied(at), tallied(at + 1u), tallied(at + 2u));
    }
    scan(thread);
    let cut = find(thread, limit());
    return Kept(workgroupUniformLoad(&scanned[THREADS - 1u]), cut);
}
