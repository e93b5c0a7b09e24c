//! The test upstream: HTTP/1.1 straight on sockets, so that it can misbehave, answering by path.
//!
//! Several listeners with a label each share one [`Recorder`], which remembers what arrived:
//!
//! ```ignore
//! let upstreams = Upstreams::start(&certs).await?;
//! upstreams.address("echo2"); // 127.0.0.1:PORT
//! upstreams.recorder.count("case-1.0");
//! ```

mod answer;
mod head;
mod write;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use openssl::ssl::{Ssl, SslAcceptor, SslMethod, SslVerifyMode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_openssl::SslStream;

use crate::certs::Certs;

pub(crate) use head::{Lines, Request, all};

/// Labels of the cleartext listeners.
pub(crate) const LABELS: [&str; 4] = ["echo", "echo2", "echo3", "echo4"];
/// Remembered requests; far more than one case makes, small enough for hours of load.
const REMEMBERED: usize = 20_000;
/// Remembered times of arrival, of all that are counted by time.
const TALLIED: usize = 1_000_000;
/// Bytes of a body that are remembered.
const REMEMBERED_BODY: usize = 256 * 1024;

/// A byte stream in either direction, plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A request as an upstream received it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Which listener.
    pub(crate) server: &'static str,
    /// The head and body.
    pub(crate) request: Request,
}

/// What arrived at all listeners.
#[derive(Default)]
pub(crate) struct Recorder {
    inner: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    seen: VecDeque<Seen>,
    by_mark: HashMap<String, u64>,
    counters: HashMap<String, u64>,
    tallies: HashMap<String, Vec<Instant>>,
    tallied: usize,
}

impl Recorder {
    /// How many requests with this `x-case` mark arrived.
    pub(crate) fn count(&self, mark: &str) -> u64 {
        self.lock().by_mark.get(mark).copied().unwrap_or(0)
    }

    /// The remembered requests for which `wanted` holds.
    pub(crate) fn find(&self, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        self.lock()
            .seen
            .iter()
            .filter(|seen| wanted(seen))
            .cloned()
            .collect()
    }

    /// When requests for `/tally/KEY` arrived, in order.
    pub(crate) fn tally(&self, key: &str) -> Vec<Instant> {
        self.lock().tallies.get(key).cloned().unwrap_or_default()
    }

    /// Requests under load are not remembered one by one: `/load` is only counted, and of `/tally/KEY`
    /// the time is kept.
    fn arrived(&self, server: &'static str, request: &Request) {
        let mut inner = self.lock();
        if let Some(key) = request.path().strip_prefix("/tally/") {
            if inner.tallied < TALLIED {
                inner.tallied += 1;
                let times = inner.tallies.entry(key.to_owned()).or_default();
                times.push(Instant::now());
            }
            return;
        }
        if request.target.starts_with("/load") {
            *inner.by_mark.entry(format!("load@{server}")).or_default() += 1;
            return;
        }
        if let Some(mark) = request.header("x-case") {
            *inner.by_mark.entry(mark.to_owned()).or_default() += 1;
        }
        if inner.seen.len() >= REMEMBERED {
            inner.seen.pop_front();
        }
        let mut request = request.clone();
        request.body.truncate(REMEMBERED_BODY);
        inner.seen.push_back(Seen { server, request });
    }

    /// Adds one to a counter of `/flaky` and gives its former value.
    fn bump(&self, key: &str) -> u64 {
        let mut inner = self.lock();
        let counter = inner.counters.entry(key.to_owned()).or_default();
        *counter += 1;
        *counter - 1
    }

    /// Sets what `/health/KEY` answers at one server.
    fn set(&self, key: &str, value: u64) {
        self.lock().counters.insert(key.to_owned(), value);
    }

    fn get(&self, key: &str) -> Option<u64> {
        self.lock().counters.get(key).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All listeners; they live as long as the runtime.
pub(crate) struct Upstreams {
    /// What arrived.
    pub(crate) recorder: Arc<Recorder>,
    addresses: HashMap<&'static str, SocketAddr>,
}

impl Upstreams {
    /// Listens on ephemeral ports of 127.0.0.1.
    pub(crate) async fn start(certs: &Certs) -> Result<Self> {
        let recorder = Arc::new(Recorder::default());
        let mut addresses = HashMap::new();
        for label in LABELS {
            let (listener, address) = listen().await?;
            addresses.insert(label, address);
            tokio::spawn(accept(listener, Arc::clone(&recorder), label, None));
        }
        let pair = certs.pair("localhost,127.0.0.1,tls.test")?;
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
        acceptor.set_private_key(&pair.key)?;
        acceptor.set_certificate(&pair.cert)?;
        // Asked for, and told; any is good, and so is none.
        acceptor.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        acceptor.set_session_id_context(b"it")?;
        let (listener, address) = listen().await?;
        addresses.insert("tls", address);
        tokio::spawn(accept(
            listener,
            Arc::clone(&recorder),
            "tls",
            Some(acceptor.build()),
        ));
        Ok(Upstreams {
            recorder,
            addresses,
        })
    }

    /// Address of a listener.
    pub(crate) fn address(&self, label: &str) -> Result<SocketAddr> {
        self.addresses
            .get(label)
            .copied()
            .with_context(|| format!("no upstream {label}"))
    }
}

async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .context("cannot listen on loopback")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn accept(
    listener: TcpListener,
    recorder: Arc<Recorder>,
    label: &'static str,
    tls: Option<SslAcceptor>,
) {
    loop {
        // A failed accept is the client's going away; the listener stays.
        let Ok((stream, remote)) = listener.accept().await else {
            continue;
        };
        let peer = Peer {
            label,
            port: port(&stream),
            remote,
            cert: None,
            recorder: Arc::clone(&recorder),
        };
        let tls = tls.clone();
        tokio::spawn(async move {
            // The upstream's own trouble shows as a failed expectation of the step.
            let _ = match tls {
                None => serve_plain(stream, peer).await,
                Some(acceptor) => serve_tls(stream, &acceptor, peer).await,
            };
        });
    }
}

fn port(stream: &TcpStream) -> u16 {
    stream.local_addr().map_or(0, |a| a.port())
}

/// Who talks to whom on one connection.
pub(crate) struct Peer {
    label: &'static str,
    port: u16,
    remote: SocketAddr,
    /// The name in the certificate that the client has shown.
    cert: Option<String>,
    recorder: Arc<Recorder>,
}

async fn serve_plain(stream: TcpStream, peer: Peer) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = Lines::new(stream);
    match serve(&mut lines, &peer).await? {
        answer::After::Close => {}
        // Zero linger makes the kernel send RST.
        answer::After::Reset => lines.into_inner().set_zero_linger()?,
    }
    Ok(())
}

async fn serve_tls(stream: TcpStream, acceptor: &SslAcceptor, mut peer: Peer) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = SslStream::new(Ssl::new(acceptor.context())?, stream)?;
    Pin::new(&mut stream).accept().await?;
    peer.cert = stream.ssl().peer_certificate().and_then(|cert| {
        let name = cert.subject_name().entries().next()?.data().to_string();
        name.ok()
    });
    serve(&mut Lines::new(stream), &peer).await?;
    Ok(())
}

/// Requests of one connection, one after the other.
async fn serve<S: Stream>(lines: &mut Lines<S>, peer: &Peer) -> Result<answer::After> {
    let mut kept = false;
    while let Some(mut request) = lines.request_head().await? {
        match request.last_segment() {
            "close-after-accept" => {
                peer.recorder.arrived(peer.label, &request);
                break;
            }
            "stale" if kept => break,
            "stale-reset" if kept => return Ok(answer::After::Reset),
            _ => kept = true,
        }
        if let Some(after) = answer::before_body(lines, &request, peer).await? {
            peer.recorder.arrived(peer.label, &request);
            return Ok(after);
        }
        if request
            .header("expect")
            .is_some_and(|e| e.eq_ignore_ascii_case("100-continue"))
        {
            lines.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let slow = request.last_segment() == "slow-read";
        lines.read_body(&mut request, slow).await?;
        peer.recorder.arrived(peer.label, &request);
        match answer::answer(lines, &request, peer).await? {
            None if request.wants_close() => break,
            None => {}
            Some(after) => return Ok(after),
        }
    }
    Ok(answer::After::Close)
}
