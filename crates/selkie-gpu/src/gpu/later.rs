//! An answer that a callback brings.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

/// The answer, once it is there, and who waits for it.
type Slot<T> = Arc<Mutex<(Option<T>, Option<Waker>)>>;

/// What a callback will be told: a future.
pub(super) struct Later<T>(Slot<T>);

impl<T> Default for Later<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((None, None))))
    }
}

impl<T: Send + 'static> Later<T> {
    /// What to call with the answer.
    pub fn teller(&self) -> impl FnOnce(T) + Send + 'static {
        let slot = self.0.clone();
        move |answer| {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.0 = Some(answer);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        }
    }
}

impl<T> Future for Later<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.0.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
