//! Drains the unread rest of a request's body once the reply is ready.
//!
//! After an HTTP/2 reply that precedes the end of the request's body, the server resets the stream,
//! and clients report the reset instead of the reply. The body is therefore drained, up to a limit,
//! before the reply is sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{sync::oneshot, time::timeout};

/// Maximum number of octets to drain from a refused request. They are discarded, so they cost
/// nothing but the transfer.
pub const MAX_REFUSED: u64 = 8 << 20;
/// Maximum number of octets to drain from an admitted request: the largest body of all routes
/// except uploads (`server::BODY`).
pub const MAX_ADMITTED: u64 = 64 << 20;
/// Time limit for draining. Without it, a client that ends its body only after the reply would
/// deadlock.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A body that returns to its owner when its reader drops it before the end.
pub struct Lent<B> {
    body: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

/// The owner's end: receives the unread body.
pub struct Unread<B>(oneshot::Receiver<B>);

pub fn lend<B>(body: B) -> (Lent<B>, Unread<B>) {
    let (back, rest) = oneshot::channel();
    (Lent { body: Some(body), back: Some(back) }, Unread(rest))
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    /// Drains the unread part like [`drain`].
    pub async fn drain(mut self, most: u64) -> Option<B> {
        // Do not wait: the handler has returned and has dropped the body, unless one of its tasks
        // still reads.
        match self.0.try_recv() {
            Ok(body) => drain(body, most).await,
            Err(_) => None,
        }
    }
}

/// Reads and discards up to `most` octets. Returns the body for [`after_reply`] if it has more.
pub async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B, most: u64) -> Option<B> {
    // Draining a part would only delay the reply, because the stream must be reset anyway.
    if body.size_hint().lower() > most {
        return Some(body);
    }
    let all = async {
        let mut octets = 0;
        while let Some(frame) = body.frame().await {
            // A failed connection is not an error here, because it delivers nothing more.
            let Ok(frame) = frame else { return true };
            octets += frame.data_ref().map_or(0, |data| data.len() as u64);
            if octets > most {
                return false;
            }
        }
        true
    };
    let all = timeout(TIMEOUT, all).await.unwrap_or(false);
    (!all).then_some(body)
}

/// A reply on a stream whose request body, `rest`, was not read to its end. The body is kept until
/// the reply is sent: h2 then resets the stream with NO_ERROR (RFC 9113 section 8.1), and clients
/// keep the reply. If it were dropped earlier, h2 would reset with CANCEL, and clients would report
/// an error instead of the reply.
pub struct ReplyThenReset<R, B> {
    reply: R,
    _rest: B,
}

pub fn after_reply<R, B>(reply: R, rest: B) -> ReplyThenReset<R, B> {
    ReplyThenReset { reply, _rest: rest }
}

impl<R: Body + Unpin, B: Unpin> Body for ReplyThenReset<R, B> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        Pin::new(&mut self.reply).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // There is no receiver any longer if the connection has ended.
            _ = back.send(body);
        }
    }
}

impl<B: Body<Data = Bytes, Error = BoxError> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
