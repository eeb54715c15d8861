//! Threads that wait for the next operation by spinning.
//!
//! A token of a small model is some two hundred operations of a few microseconds, so handing one out must cost less than
//! a microsecond: the workers spin for a while after each operation, and sleep only when none came. The caller takes
//! part, and never waits for a worker that has not begun: a thread which the system has put aside delays nobody.
#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::Isa;

/// How long a worker spins after an operation before it sleeps. Longer than the pauses between the operations of a
/// token and than sampling takes; waking a sleeper costs some 50 us.
const SPIN: Duration = Duration::from_micros(200);

/// The count of workers at work lies in the lower bits of [`Shared::state`].
const GENERATION: u64 = 1 << 16;

thread_local! {
    /// Whether this thread is inside of a task, of any pool.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// A job as the workers see it: a function and what to pass it.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    data: *const (),
    tasks: usize,
}

/// Keeps what threads write to apart.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    /// `generation * GENERATION + workers at work`. The generation is odd while a job is open.
    state: Apart<AtomicU64>,
    /// The next task of the open job.
    next: Apart<AtomicUsize>,
    /// Written only while no job is open and no worker at work, read only by workers at work.
    job: UnsafeCell<Job>,
    sleepers: AtomicUsize,
    /// Guards going to sleep; true when the pool shuts down.
    stop: Mutex<bool>,
    wake: Condvar,
    /// The first panic of a worker's task.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is handed over through `state` as its comment says, and the data behind it is `Sync` (see `run`).
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// A fixed set of threads that share out the tasks of one operation at a time.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a job runs: callers on several threads take turns.
    turn: Mutex<()>,
    isa: Isa,
}

impl Pool {
    /// A pool of `threads` threads, the caller among them (0 counts as 1), that uses the best instruction set there is.
    pub fn new(threads: usize) -> Self {
        Self::with_isa(threads, Isa::best())
    }

    /// The same with a given instruction set.
    pub fn with_isa(threads: usize, isa: Isa) -> Self {
        let shared = Arc::new(Shared {
            state: Apart(AtomicU64::new(0)),
            next: Apart(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job { call: |_, _| (), data: std::ptr::null(), tasks: 0 }),
            sleepers: AtomicUsize::new(0),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        // Where the system refuses a thread, there are fewer: the caller alone is enough.
        let workers = (1..threads)
            .map_while(|i| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("selkie-{i}")).spawn(move || work(&shared)).ok()
            })
            .collect();
        Self { shared, workers, turn: Mutex::new(()), isa }
    }

    /// How many threads a pool should have: the physical cores which this process may use.
    pub fn default_threads() -> usize {
        let usable = std::thread::available_parallelism().map_or(1, |n| n.get());
        physical_cores().map_or(usable, |cores| usable.min(cores)).max(1)
    }

    /// Threads that take part in an operation, the caller among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The instruction set of the kernels that run on this pool.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Calls `task(0)` to `task(tasks - 1)`, in any order, on all threads; returns when all have returned.
    ///
    /// Inside of a task it runs everything on the calling thread.
    ///
    /// # Panics
    /// If a task panics, with its payload, after the others have ended; tasks not begun may be left out.
    pub fn run<F: Fn(usize) + Sync>(&self, tasks: usize, task: F) {
        if tasks <= 1 || self.workers.is_empty() || IN_TASK.get() {
            (0..tasks).for_each(task);
            return;
        }
        /// # Safety
        /// `data` points to an `F`.
        unsafe fn call<F: Fn(usize)>(data: *const (), index: usize) {
            // SAFETY: the caller's.
            unsafe { (*data.cast::<F>())(index) }
        }
        let turn = lock(&self.turn);
        let shared = &*self.shared;
        let job = Job { call: call::<F>, data: (&raw const task).cast(), tasks };
        // SAFETY: the last job was closed and its workers have left, and nobody else writes while we hold `turn`.
        unsafe { *shared.job.get() = job };
        shared.next.0.store(0, Ordering::Relaxed);
        // Opens the job. Sequentially consistent, as is the look at `sleepers`: either this sees a worker that goes to
        // sleep, or that worker sees the open job.
        shared.state.0.fetch_add(GENERATION, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&shared.stop);
            shared.wake.notify_all();
        }
        // SAFETY: `job` is the open job.
        let mine = unsafe { take_part(shared, job) };
        // Closes the job: from now on no worker enters. Those inside end their tasks, and with them all use of `task`.
        shared.state.0.fetch_add(GENERATION, Ordering::Relaxed);
        let mut spins = 0u32;
        while !shared.state.0.load(Ordering::Acquire).is_multiple_of(GENERATION) {
            pause(&mut spins);
        }
        let theirs = lock(&shared.panic).take();
        drop(turn);
        if let Some(payload) = mine.err().or(theirs) {
            resume_unwind(payload);
        }
    }

    /// Shares out `items` in runs of at least `grain`, a few runs per thread: `task(range of items)`.
    pub fn split<F: Fn(std::ops::Range<usize>) + Sync>(&self, items: usize, grain: usize, task: F) {
        let chunk = items.div_ceil(4 * self.threads()).max(grain).max(1);
        self.run(items.div_ceil(chunk), |i| task(i * chunk..((i + 1) * chunk).min(items)));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.stop) = true;
        // Wakes the spinning ones too: they look at `stop` before they sleep, and soon do.
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).field("isa", &self.isa).finish()
    }
}

/// Nothing here leaves shared state half changed, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits a moment, and now and then lets another thread run, in case the one waited for needs this core.
fn pause(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Runs tasks until none is left, or one panics.
///
/// # Safety
/// `job` is open, and stays so or has this thread counted in until this returns.
unsafe fn take_part(shared: &Shared, job: Job) -> Result<(), Box<dyn Any + Send>> {
    IN_TASK.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        loop {
            let task = shared.next.0.fetch_add(1, Ordering::Relaxed);
            if task >= job.tasks {
                break;
            }
            // SAFETY: `run` keeps what `data` points to until the job is closed and all have left.
            unsafe { (job.call)(job.data, task) };
        }
    }));
    IN_TASK.set(false);
    if result.is_err() {
        // The others need not begin anything more.
        shared.next.0.store(job.tasks, Ordering::Relaxed);
    }
    result
}

/// What a worker does: waits for an open job, takes part, waits for another.
fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        let Some(generation) = await_job(shared, seen) else { return };
        seen = generation;
        // Enters, unless the job was closed meanwhile.
        let mut state = shared.state.0.load(Ordering::Relaxed);
        let entered = loop {
            if state / GENERATION != generation {
                break false;
            }
            match shared.state.0.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break true,
                Err(now) => state = now,
            }
        };
        if !entered {
            continue;
        }
        // SAFETY: this thread is counted in, so the job is the open one and will not be replaced until it leaves.
        let result = unsafe { take_part(shared, *shared.job.get()) };
        if let Err(payload) = result {
            lock(&shared.panic).get_or_insert(payload);
        }
        shared.state.0.fetch_sub(1, Ordering::Release);
    }
}

/// The generation of a job that is open and is not `seen`; `None` when the pool shuts down.
fn await_job(shared: &Shared, seen: u64) -> Option<u64> {
    let open = |order| {
        let generation = shared.state.0.load(order) / GENERATION;
        (generation % 2 == 1 && generation != seen).then_some(generation)
    };
    let started = Instant::now();
    let mut spins = 0u32;
    loop {
        if let Some(generation) = open(Ordering::Acquire) {
            return Some(generation);
        }
        pause(&mut spins);
        if spins.is_multiple_of(64) && started.elapsed() > SPIN {
            break;
        }
    }
    let mut stop = lock(&shared.stop);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let found = loop {
        if *stop {
            break None;
        }
        if let Some(generation) = open(Ordering::SeqCst) {
            break Some(generation);
        }
        stop = shared.wake.wait(stop).unwrap_or_else(PoisonError::into_inner);
    };
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
    found
}

/// Cores rather than hardware threads: those share the units which the kernels keep busy.
fn physical_cores() -> Option<usize> {
    let mut cores = std::collections::HashSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        if let Ok(siblings) = std::fs::read_to_string(entry.path().join("topology/thread_siblings_list")) {
            cores.insert(siblings);
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 3, 100] {
                let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                pool.run(tasks, |i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn many_short_jobs_from_several_callers() {
        let pool = Pool::new(3);
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for caller in 0..3 {
                let (pool, total) = (&pool, &total);
                scope.spawn(move || {
                    for job in 0..3000 {
                        // What the tasks use lives on this stack and changes with every job.
                        let value = [caller + job; 4];
                        pool.run(4, |i| {
                            total.fetch_add(value[i], Ordering::Relaxed);
                        });
                        if job % 1000 == 0 {
                            std::thread::sleep(2 * SPIN);
                        }
                    }
                });
            }
        });
        let wanted: u64 = (0..3).flat_map(|c| (0..3000).map(move |j| 4 * (c + j))).sum();
        assert_eq!(total.into_inner(), wanted);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        for bad in 0..50 {
            let payload = catch_unwind(AssertUnwindSafe(|| {
                pool.run(50, |i| {
                    if i == bad {
                        panic!("task {i}")
                    }
                });
            }))
            .expect_err("the panic must arrive");
            assert_eq!(payload.downcast_ref::<String>(), Some(&format!("task {bad}")));
            let done = AtomicUsize::new(0);
            pool.run(20, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 20);
        }
    }

    #[test]
    fn a_job_inside_of_a_task_runs_there() {
        let pool = Pool::new(2);
        let done = AtomicUsize::new(0);
        pool.run(4, |_| {
            pool.run(5, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        assert_eq!(done.into_inner(), 20);
    }

    #[test]
    fn an_idle_pool_sleeps() {
        let pool = Pool::new(3);
        pool.run(3, |_| ());
        for _ in 0..1000 {
            if pool.shared.sleepers.load(Ordering::SeqCst) == 2 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the workers still spin");
    }
}
