//! What hyper makes of a request: a third parser, and one that many upstreams are built on.
//!
//! It may refuse what the reference takes (it wants a target that `http::Uri` can hold); what it takes
//! it has to take as one request, with the same method and body.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::hyper::body::Incoming;
use ::hyper::server::conn::http1;
use ::hyper::service::service_fn;
use http::{Request as Head, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::reference::Request;

/// Nothing here waits for anything but memory; a parser that wants more than there is waits for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// What hyper made of it.
pub(super) enum Verdict {
    /// The same request.
    Same,
    /// None.
    Refused,
    /// Something else.
    Differs(String),
}

/// Method and body of a request that hyper found; no body where it broke off.
type Found = (Vec<u8>, Option<Vec<u8>>);

/// Reads the bytes of one request.
pub(super) async fn reads(request: &Request, bytes: &[u8]) -> Verdict {
    let Ok(found) = tokio::time::timeout(PATIENCE, all(bytes)).await else {
        return Verdict::Differs("hyper waits for more".to_owned());
    };
    match &found[..] {
        [] => Verdict::Refused,
        // Refused after its head: of a body that it does not take, nothing gets through.
        [(_, None)] => Verdict::Refused,
        [(method, Some(body))] if *method == request.method && *body == request.body => {
            Verdict::Same
        }
        [(method, Some(body))] => Verdict::Differs(format!(
            "hyper finds {} with {} bytes instead of {}",
            String::from_utf8_lossy(method),
            body.len(),
            request.body.len()
        )),
        more => Verdict::Differs(format!("hyper finds {} requests in one", more.len())),
    }
}

/// All requests that hyper finds.
async fn all(bytes: &[u8]) -> Vec<Found> {
    let found: Arc<Mutex<Vec<Found>>> = Arc::default();
    let service = service_fn(|head: Head<Incoming>| {
        let found = Arc::clone(&found);
        async move {
            let method = head.method().as_str().as_bytes().to_vec();
            let body = head.into_body().collect().await.ok();
            let body = body.map(|all| all.to_bytes().to_vec());
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.push((method, body));
            Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
        }
    });
    let (mut ours, theirs) = duplex(16 * 1024);
    let serving = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(theirs), service);
    let (mut read, mut write) = tokio::io::split(&mut ours);
    let sending = async {
        // It stops reading when it refuses.
        let _ = write.write_all(bytes).await;
        let _ = write.shutdown().await;
    };
    let reading = async {
        let mut answers = Vec::new();
        let _ = read.read_to_end(&mut answers).await;
    };
    // Its own word for an error is of no interest: what it found is.
    let _ = tokio::join!(async { serving.await.is_ok() }, sending, reading);
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut found)
}
