//! The test client: writes bytes exactly as given and reports exactly what came back.
//!
//! A broken answer is not an error here but an [`Answer`] that says so, because many cases expect it.
//!
//! ```ignore
//! let mut connection = Connection::open(&target).await?;
//! let answer = connection.exchange(&Message::new("GET", head, body)).await;
//! assert_eq!(answer.status, Some(200));
//! ```

pub(crate) mod http2;
pub(crate) mod websocket;

use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use openssl::nid::Nid;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use crate::certs::Pair;
use crate::upstream::{Lines, Stream};

/// No answer may take longer; the slowest expected ones (timeouts of the gateway) stay below.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How long the gateway may take to close a connection that it must close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait for `100 Continue` before the body is sent anyway.
const CONTINUE_WAIT: Duration = Duration::from_secs(2);
/// Read-to-the-end bodies stop here.
const BODY_LIMIT: usize = 256 * 1024 * 1024;

/// Where and how to connect.
#[derive(Clone)]
pub(crate) struct Target {
    /// The gateway's address.
    pub(crate) address: SocketAddr,
    /// A source address of our own.
    pub(crate) bind: Option<IpAddr>,
    /// TLS, if any.
    pub(crate) tls: Option<Tls>,
}

/// Choices of the TLS handshake.
#[derive(Clone)]
pub(crate) struct Tls {
    /// Server name; none sends none.
    pub(crate) sni: Option<String>,
    /// Protocol names to offer.
    pub(crate) alpn: Vec<String>,
    /// Client certificate.
    pub(crate) cert: Option<Arc<Pair>>,
    /// The only version to speak.
    pub(crate) version: Option<SslVersion>,
}

/// One request as bytes.
#[derive(Clone, Default)]
pub(crate) struct Message {
    /// Needed to know whether the answer has a body.
    pub(crate) method: String,
    /// Start line and fields with the empty line.
    pub(crate) head: Vec<u8>,
    /// Body as it goes on the wire.
    pub(crate) body: Vec<u8>,
    /// Wait for `100 Continue` before the body.
    pub(crate) waits: bool,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Missing when no answer came.
    pub(crate) status: Option<u16>,
    /// `HTTP/1.1`.
    pub(crate) version: String,
    /// Names in lower case, in order.
    pub(crate) headers: Vec<(String, String)>,
    /// Decoded from chunks, not from a content encoding.
    pub(crate) body: Vec<u8>,
    /// Fields after a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
    /// 1xx codes that came first.
    pub(crate) interim: Vec<u16>,
    /// The answer ended before its framing said so.
    pub(crate) cut: bool,
    /// Common name of the gateway's certificate.
    pub(crate) certificate: Option<String>,
    /// From the first byte sent to the last received.
    pub(crate) took: Duration,
    /// Why there is no (complete) answer.
    pub(crate) error: Option<String>,
}

impl Answer {
    /// An exchange that failed before an answer.
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        Answer {
            error: Some(format!("{error:#}")),
            ..Answer::default()
        }
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        crate::upstream::all(&self.headers, name)
    }

    /// The upstream that answered; none when the gateway did.
    pub(crate) fn server(&self) -> Option<&str> {
        self.all("x-server").first().copied()
    }
}

/// A connection to the gateway.
pub(crate) struct Connection {
    lines: Lines<ReadHalf<Box<dyn Stream>>>,
    writer: WriteHalf<Box<dyn Stream>>,
    certificate: Option<String>,
}

impl Connection {
    /// Connects, with TLS if the target says so.
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        let (stream, certificate) = connect(target).await?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Connection {
            lines: Lines::new(reader),
            writer,
            certificate,
        })
    }

    /// Sends a request and reads its answer, at the same time.
    pub(crate) async fn exchange(&mut self, message: &Message) -> Answer {
        let start = Instant::now();
        let (go, mut went) = watch::channel(!message.waits);
        let writer = &mut self.writer;
        let write = async {
            // Errors show in the answer: a gateway may answer early and close.
            if writer.write_all(&message.head).await.is_err() || writer.flush().await.is_err() {
                return;
            }
            let _ = timeout(CONTINUE_WAIT, went.wait_for(|go| *go)).await;
            let _ = writer.write_all(&message.body).await;
            let _ = writer.flush().await;
        };
        let lines = &mut self.lines;
        let read = timeout(DEADLINE, read_answer(lines, &message.method, &go));
        let (mut write, mut read) = (pin!(write), pin!(read));
        let mut written = false;
        let outcome = loop {
            tokio::select! {
                outcome = &mut read => break outcome,
                () = &mut write, if !written => written = true,
            }
        };
        let mut answer = match outcome {
            Ok(answer) => answer,
            Err(_) => Answer::failed(&anyhow::anyhow!("no complete answer within {DEADLINE:?}")),
        };
        answer.took = start.elapsed();
        answer.certificate.clone_from(&self.certificate);
        answer
    }

    /// Sends bytes and reads `answers` answers or until the end.
    pub(crate) async fn raw(&mut self, bytes: &[u8], answers: usize) -> Vec<Answer> {
        let head_only = bytes.starts_with(b"HEAD ");
        let method = if head_only { "HEAD" } else { "GET" }.to_owned();
        let first = Message {
            method,
            head: bytes.to_vec(),
            ..Message::default()
        };
        let mut out = vec![self.exchange(&first).await];
        let (go, _) = watch::channel(true);
        while out.len() < answers && out.iter().all(|a| a.status.is_some() && a.error.is_none()) {
            match timeout(DEADLINE, read_answer(&mut self.lines, "GET", &go)).await {
                Ok(answer) => out.push(answer),
                Err(_) => bail_into(&mut out),
            }
        }
        out
    }

    /// Writes bytes without reading.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await?;
        Ok(())
    }

    /// Reads one more answer.
    pub(crate) async fn read(&mut self, method: &str) -> Answer {
        let (go, _) = watch::channel(true);
        match timeout(DEADLINE, read_answer(&mut self.lines, method, &go)).await {
            Ok(answer) => answer,
            Err(_) => Answer::failed(&anyhow::anyhow!("no complete answer within {DEADLINE:?}")),
        }
    }

    /// Whether the gateway ends the connection soon, without sending anything more.
    pub(crate) async fn closes(&mut self) -> Result<(), String> {
        match timeout(CLOSE_DEADLINE, self.lines.fill()).await {
            Ok(Ok(0) | Err(_)) => Ok(()),
            Ok(Ok(_)) => Err(format!(
                "the connection went on with {:?}",
                self.lines.text()
            )),
            Err(_) => Err(format!(
                "the connection is still open after {CLOSE_DEADLINE:?}"
            )),
        }
    }

    /// Talks WebSocket after a 101. The first texts, so many of them, were sent before.
    pub(crate) async fn websocket(&mut self, texts: &[String], before: usize) -> Result<()> {
        let talk = websocket::talk(&mut self.lines, &mut self.writer, texts, before);
        timeout(DEADLINE, talk)
            .await
            .context("the talk took too long")?
    }
}

fn bail_into(out: &mut Vec<Answer>) {
    out.push(Answer::failed(&anyhow::anyhow!(
        "no further answer within {DEADLINE:?}"
    )));
}

/// Connects; gives the stream and the common name of the gateway's certificate.
pub(crate) async fn connect(target: &Target) -> Result<(Box<dyn Stream>, Option<String>)> {
    timeout(DEADLINE, handshake(target))
        .await
        .context("connecting took too long")?
}

async fn handshake(target: &Target) -> Result<(Box<dyn Stream>, Option<String>)> {
    let stream = match target.bind {
        None => TcpStream::connect(target.address).await,
        Some(ip) => {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(ip, 0))?;
            socket.connect(target.address).await
        }
    }
    .with_context(|| format!("cannot connect to {}", target.address))?;
    stream.set_nodelay(true)?;
    let Some(tls) = &target.tls else {
        return Ok((Box::new(stream), None));
    };

    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_min_proto_version(tls.version)?;
    builder.set_max_proto_version(tls.version)?;
    if let Some(pair) = &tls.cert {
        builder.set_certificate(&pair.cert)?;
        builder.set_private_key(&pair.key)?;
    }
    let mut wire = Vec::new();
    for name in &tls.alpn {
        wire.push(u8::try_from(name.len())?);
        wire.extend_from_slice(name.as_bytes());
    }
    if !wire.is_empty() {
        builder.set_alpn_protos(&wire)?;
    }
    let config = builder.build().configure()?.verify_hostname(false);
    let config = config.use_server_name_indication(tls.sni.is_some());
    let ssl = config.into_ssl(tls.sni.as_deref().unwrap_or("none.test"))?;
    let mut stream = SslStream::new(ssl, stream)?;
    Pin::new(&mut stream)
        .connect()
        .await
        .context("TLS handshake failed")?;
    let certificate = stream.ssl().peer_certificate().and_then(|cert| {
        let entry = cert.subject_name().entries_by_nid(Nid::COMMONNAME).next()?;
        entry.data().to_string().ok()
    });
    Ok((Box::new(stream), certificate))
}

type Reader = Lines<ReadHalf<Box<dyn Stream>>>;

async fn read_answer(lines: &mut Reader, method: &str, go: &watch::Sender<bool>) -> Answer {
    let mut answer = Answer::default();
    if let Err(error) = fill_answer(lines, method, go, &mut answer).await {
        answer.cut = answer.status.is_some();
        answer.error = Some(format!("{error:#}"));
    }
    answer
}

async fn fill_answer(
    lines: &mut Reader,
    method: &str,
    go: &watch::Sender<bool>,
    answer: &mut Answer,
) -> Result<()> {
    let status = loop {
        let Some((line, headers)) = lines.head().await? else {
            bail!("closed without an answer")
        };
        let mut words = line.splitn(3, ' ');
        words
            .next()
            .unwrap_or_default()
            .clone_into(&mut answer.version);
        let status = words.next().unwrap_or_default();
        let status: u16 = status
            .parse()
            .with_context(|| format!("bad status line {line:?}"))?;
        if status == 101 || !(100..200).contains(&status) {
            answer.headers = headers;
            break status;
        }
        answer.interim.push(status);
        // Nobody waits when the body has been sent already.
        let _ = go.send(true);
    };
    answer.status = Some(status);
    if method == "HEAD" || status < 200 || matches!(status, 204 | 304) {
        return Ok(());
    }
    let chunked = answer
        .all("transfer-encoding")
        .iter()
        .any(|v| v.eq_ignore_ascii_case("chunked"));
    let length = answer
        .all("content-length")
        .first()
        .map(|v| v.parse::<usize>())
        .transpose()?;
    if chunked {
        let complete;
        (answer.body, answer.trailers, complete) = lines.chunked().await?;
        answer.cut = !complete;
    } else if let Some(length) = length {
        answer.body = lines.exactly(length).await?;
        answer.cut = answer.body.len() < length;
    } else {
        while lines.fill().await? > 0 {
            answer.body.extend(lines.take(usize::MAX));
            if answer.body.len() > BODY_LIMIT {
                bail!("body without end");
            }
        }
        answer.body.extend(lines.take(usize::MAX));
    }
    Ok(())
}
