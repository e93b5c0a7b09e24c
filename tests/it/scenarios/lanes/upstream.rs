//! An upstream that reads what a gateway sends as strictly as can be, and remembers it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::grammar::readable;
use super::reference::{self, Ends, Found, Framing, Request};

/// Before a connection is closed on purpose: what was sent should be read first.
const BEFORE_CLOSE: Duration = Duration::from_millis(5);

/// An upstream of one gateway.
pub(super) struct Strict {
    pub(super) address: SocketAddr,
    /// Where odd answers come from.
    pub(super) odd: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Requests by the mark in their path, and their bytes.
    requests: HashMap<String, Vec<(Request, Vec<u8>)>>,
    /// What to answer to `/l/MARK/raw`.
    scripts: HashMap<String, Vec<u8>>,
    /// What was no request.
    broken: Vec<String>,
}

impl Strict {
    /// Listens on ports of the kernel's choice.
    pub(super) async fn start() -> Result<Strict> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let address = listen(&seen).await?;
        let odd = listen(&seen).await?;
        Ok(Strict { address, odd, seen })
    }

    /// Sets the answer to an input's `raw`.
    pub(super) fn script(&self, mark: &str, answer: Vec<u8>) {
        lock(&self.seen).scripts.insert(mark.to_owned(), answer);
    }

    /// Takes the requests of an input, in the order of their arrival.
    pub(super) fn take(&self, mark: &str) -> Vec<(Request, Vec<u8>)> {
        let mut seen = lock(&self.seen);
        seen.scripts.remove(mark);
        seen.requests.remove(mark).unwrap_or_default()
    }

    /// Takes what arrived and was no request.
    pub(super) fn broken(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.seen).broken)
    }

    /// Requests that no input has taken.
    pub(super) fn left(&self) -> Vec<Request> {
        let mut seen = lock(&self.seen);
        let all = seen.requests.drain().flat_map(|(_, all)| all);
        all.map(|(request, _)| request).collect()
    }
}

async fn listen(seen: &Arc<Mutex<Seen>>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let seen = Arc::clone(seen);
    tokio::spawn(async move {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                // A connection that breaks is the gateway's to close.
                tokio::spawn(async move { serve(stream, &seen).await });
            }
        }
    });
    Ok(address)
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mark in a target such as `/l/MARK/a`.
pub(super) fn mark(target: &[u8]) -> Option<String> {
    let at = target.windows(3).position(|w| w == b"/l/")? + 3;
    let mark = target[at..].split(|&b| b == b'/').next()?;
    Some(String::from_utf8_lossy(mark).into_owned())
}

async fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = Vec::new();
    let mut continued = false;
    loop {
        let request = match reference::request(&buf) {
            Found::Whole(request) => request,
            Found::Refused(why) => {
                let text = readable(&buf[..buf.len().min(2_000)], "");
                lock(seen).broken.push(format!("{why}:\n{text}"));
                return Ok(());
            }
            Found::Partial => {
                let waits = b"expect: 100-continue\r\n";
                let head = buf.windows(4).position(|w| w == b"\r\n\r\n");
                let expects = |head: usize| {
                    let lower = buf[..head + 2].to_ascii_lowercase();
                    lower.windows(waits.len()).any(|w| w == waits)
                };
                if !continued && head.is_some_and(expects) {
                    continued = true;
                    stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                if stream.read_buf(&mut buf).await? == 0 {
                    return Ok(());
                }
                continue;
            }
        };
        continued = false;
        let bytes: Vec<u8> = buf.drain(..request.len).collect();
        let mark = mark(&request.target).unwrap_or_default();
        let script = {
            let mut seen = lock(seen);
            let raw = request.target.ends_with(b"/raw");
            let script = seen.scripts.get(&mark).filter(|_| raw).cloned();
            let all = seen.requests.entry(mark).or_default();
            all.push((request.clone(), bytes));
            script
        };
        let persistent = match script {
            None => {
                stream.write_all(&answer(&request)).await?;
                request.persistent
            }
            Some(script) => {
                stream.write_all(&script).await?;
                ends(&script)
            }
        };
        if !persistent {
            tokio::time::sleep(BEFORE_CLOSE).await;
            return Ok(());
        }
    }
}

/// The usual answer: it names the target, so that the client can tell to whom it belongs.
fn answer(request: &Request) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\nX-Target: ".to_vec();
    out.extend_from_slice(&request.target);
    let chunks = request.framing == Framing::Chunked && request.http11;
    out.extend_from_slice(if chunks {
        b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    } else {
        b"\r\nContent-Length: 2\r\n\r\n"
    });
    if request.method != b"HEAD" {
        out.extend_from_slice(if chunks {
            b"2\r\nok\r\n0\r\n\r\n"
        } else {
            b"ok"
        });
    }
    out
}

/// Whether an answer ends by itself, so that a gateway may send another request.
pub(super) fn ends(script: &[u8]) -> bool {
    let Found::Whole(head) = reference::answer(script, Ends::Lf) else {
        return false;
    };
    let whole = match head.framing {
        _ if head.status < 200 => false,
        Framing::Length(length) => (script.len() - head.head) as u64 >= length,
        Framing::Chunked => reference::chunks(script, head.head).is_ok(),
        _ => false,
    };
    whole && head.persistent
}
