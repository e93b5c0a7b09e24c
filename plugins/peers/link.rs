//! The connection to one peer, to ask it.
//!
//! Made anew when it is lost, for as long as the peer takes part. A question goes out at once when none is
//! under way, else with all that came meanwhile, in frames of at most [`MOST_ASKS`]. Whoever asks
//! waits for its own time only; after failures nobody waits ([`Breaker`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockgate_quota::{Admitted, Away, Breaker};
use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::core::Core;
use crate::figures::Tallies;
use crate::frame::{Frame, Hello, LONGEST, MOST_ASKS, Put, Question, Reply};
use crate::members::Node;
use crate::secure::{Refused, Secure, Stream};
use crate::wire::Bad;

/// Questions that wait to be sent. More than a peer answers in any deadline.
const MOST_QUEUED: usize = 4_096;
/// Questions that were sent. Those whose askers are gone make room for others.
const MOST_PENDING: usize = 16_384;
/// For connecting, the handshake and the first frames.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For a write. A peer that takes nothing for so long is gone.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// Between two signs of life.
const PULSE: Duration = Duration::from_secs(1);
/// A peer that says nothing for so long is gone: pulses are answered.
const SILENCE: Duration = Duration::from_secs(4);
/// Before the next try, at first; doubled with each, and half of it more at random, so that peers do not
/// all come at once to one that was started anew.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("it cannot be connected to")]
    Connect(#[source] std::io::Error),
    #[error("the connection broke")]
    Broken(#[source] std::io::Error),
    #[error("the connection was refused")]
    Refused(#[source] Refused),
    #[error("what it says is no frame")]
    Bad(#[source] Bad),
    #[error("it is another gateway or another start of it, `{0}`")]
    Other(String),
    #[error("it says nothing")]
    Silent,
    #[error("it was closed")]
    Closed,
}

/// A question and who waits for the answer.
struct Queued {
    question: Question,
    /// So long it is waited for.
    until: Instant,
    answer: oneshot::Sender<Reply>,
}

/// See the module.
pub(crate) struct Link {
    queue: mpsc::Sender<Queued>,
    run: u64,
    /// Whether there is a connection.
    up: Arc<AtomicBool>,
    breaker: Breaker,
    core: Arc<Core>,
}

impl Link {
    /// A link to this start of a gateway, which works until it is dropped.
    pub(crate) fn open(core: &Arc<Core>, secure: &Arc<Secure>, node: &Node) -> Link {
        let (queue, queued) = mpsc::channel(MOST_QUEUED);
        let up = Arc::new(AtomicBool::new(false));
        let dialer = Dialer {
            core: Arc::clone(core),
            secure: Arc::clone(secure),
            name: node.name.clone(),
            run: node.run,
            up: Arc::clone(&up),
            knew: AtomicU64::new(0),
        };
        tokio::spawn(dialer.run(queued));
        Link {
            queue,
            run: node.run,
            up,
            breaker: Breaker::default(),
            core: Arc::clone(core),
        }
    }

    /// Which start of the gateway it is to; 0 for any.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Asks, and waits until then at most.
    pub(crate) async fn ask(&self, question: Question, until: Instant) -> Result<Reply, Away> {
        // Of this link's own clock: callers' clocks need not have the same zero.
        let now = self.core.nanos();
        if !self.is_up() {
            return Err(Away::Known);
        }
        let longest = until.saturating_duration_since(Instant::now());
        let admitted = self.breaker.admit(now, longest);
        if admitted == Admitted::No {
            return Err(Away::Known);
        }
        let asked = self.tell(question, until).await;
        match &asked {
            Ok(_) => self.breaker.answered(),
            Err(_) => _ = self.breaker.failed(admitted, self.core.nanos()),
        }
        asked
    }

    /// The same for what has to be said however often it failed before, and tells nothing of whether
    /// requests should wait.
    pub(crate) async fn tell(&self, question: Question, until: Instant) -> Result<Reply, Away> {
        if !self.is_up() {
            return Err(Away::Known);
        }
        let start = Instant::now();
        let (answer, answered) = oneshot::channel();
        let queued = Queued {
            question,
            until,
            answer,
        };
        if self.queue.try_send(queued).is_err() {
            return Err(Away::Failed("too many questions wait for it".into()));
        }
        match timeout_at(until, answered).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(Away::Failed("the connection to it was lost".into())),
            Err(_) => Err(Away::Late(start.elapsed())),
        }
    }
}

struct Dialer {
    core: Arc<Core>,
    secure: Arc<Secure>,
    name: String,
    run: u64,
    up: Arc<AtomicBool>,
    /// The start of the peer that was met last.
    knew: AtomicU64,
}

impl Dialer {
    async fn run(self, mut queued: mpsc::Receiver<Queued>) {
        let mut pause = PAUSE;
        while !queued.is_closed() {
            let lost = match self.connect().await {
                Ok(connected) => {
                    pause = PAUSE;
                    tracing::info!(peer = %self.name, "connected to a peer");
                    self.up.store(true, Ordering::Release);
                    let lost = connected.run(&self.core, &mut queued).await;
                    self.up.store(false, Ordering::Release);
                    lost
                }
                Err(lost) => lost,
            };
            if queued.is_closed() {
                return;
            }
            // Once for each series of failures.
            if pause == PAUSE {
                let cause = std::error::Error::source(&lost).map(ToString::to_string);
                tracing::warn!(peer = %self.name, error = %lost, cause, "no connection to a peer");
            }
            // Whoever waits is told by that nobody answers.
            while queued.try_recv().is_ok() {}
            let more = rand::rng().random_range(0.0..0.5);
            tokio::time::sleep(pause.mul_f64(1.0 + more)).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    async fn connect(&self) -> Result<Connected, Lost> {
        let limited = timeout(CONNECT_LIMIT, async {
            let tcp = TcpStream::connect(&self.name)
                .await
                .map_err(Lost::Connect)?;
            tcp.set_nodelay(true).map_err(Lost::Connect)?;
            let host = host(&self.name);
            let stream = self.secure.dial(tcp, host).await.map_err(Lost::Refused)?;
            let (read, mut write) = tokio::io::split(stream);
            let hello = Frame::Hello(Hello {
                name: self.core.name.clone(),
                run: self.core.run,
                knew: self.knew.load(Ordering::Relaxed),
                epoch: self.core.view().epoch(),
            });
            write
                .write_all(&hello.write())
                .await
                .map_err(Lost::Broken)?;
            let mut frames = Frames::new(read);
            match frames.next().await? {
                Frame::Hello(hello)
                    if hello.name == self.name && [0, hello.run].contains(&self.run) =>
                {
                    self.knew.store(hello.run, Ordering::Relaxed);
                    self.core.hear(hello.epoch);
                }
                Frame::Hello(hello) => return Err(Lost::Other(hello.name)),
                _ => return Err(Lost::Bad(Bad::Word(0))),
            }
            Ok(Connected {
                frames,
                write,
                pending: HashMap::new(),
                last: 0,
            })
        });
        limited.await.unwrap_or(Err(Lost::Silent))
    }
}

struct Connected {
    frames: Frames,
    write: WriteHalf<Stream>,
    pending: HashMap<u64, oneshot::Sender<Reply>>,
    /// Number of the last question.
    last: u64,
}

impl Connected {
    /// Asks and hears answers until something ends it.
    async fn run(mut self, core: &Core, queued: &mut mpsc::Receiver<Queued>) -> Lost {
        let mut pulse = tokio::time::interval(PULSE);
        let mut heard = Instant::now();
        loop {
            let sent = tokio::select! {
                frame = self.frames.next() => {
                    heard = Instant::now();
                    match frame {
                        Ok(Frame::Answers { epoch, answers }) => {
                            core.hear(epoch);
                            self.answered(answers);
                            Ok(())
                        }
                        Ok(_) => Err(Lost::Bad(Bad::Word(0))),
                        Err(lost) => Err(lost),
                    }
                }
                first = queued.recv() => match first {
                    Some(first) => self.ask(core, first, queued).await,
                    None => Err(Lost::Closed),
                },
                _ = pulse.tick() => {
                    if heard.elapsed() > SILENCE {
                        Err(Lost::Silent)
                    } else {
                        self.send(core, Vec::new()).await
                    }
                }
            };
            if let Err(lost) = sent {
                return lost;
            }
        }
    }

    /// The first, and all that came with it.
    async fn ask(
        &mut self,
        core: &Core,
        first: Queued,
        queued: &mut mpsc::Receiver<Queued>,
    ) -> Result<(), Lost> {
        // Those of other workers that are about to ask come along.
        tokio::task::yield_now().await;
        let mut next = Some(first);
        let mut asks = Vec::new();
        while let Some(Queued {
            question,
            until,
            answer,
        }) = next
        {
            if !answer.is_closed() {
                if self.pending.len() >= MOST_PENDING {
                    self.pending.retain(|_, answer| !answer.is_closed());
                }
                // Beyond that it is told by that nobody answers.
                if self.pending.len() < MOST_PENDING {
                    self.last += 1;
                    self.pending.insert(self.last, answer);
                    asks.push(Put {
                        number: self.last,
                        within: until.saturating_duration_since(Instant::now()),
                        question,
                    });
                }
            }
            next = match asks.len() {
                MOST_ASKS => None,
                _ => queued.try_recv().ok(),
            };
        }
        core.tallies
            .asked
            .fetch_add(asks.len() as u64, Ordering::Relaxed);
        self.send(core, asks).await
    }

    async fn send(&mut self, core: &Core, asks: Vec<Put>) -> Result<(), Lost> {
        let epoch = core.view().epoch();
        let bytes = Frame::Asks { epoch, asks }.write();
        let written = timeout(WRITE_LIMIT, async {
            self.write.write_all(&bytes).await?;
            self.write.flush().await
        });
        match written.await {
            Ok(written) => written.map_err(Lost::Broken),
            Err(_) => Err(Lost::Silent),
        }
    }

    fn answered(&mut self, answers: Vec<(u64, Reply)>) {
        for (number, reply) in answers {
            if let Some(answer) = self.pending.remove(&number) {
                // Who asked may be gone.
                let _ = answer.send(reply);
            }
        }
    }
}

/// Frames as they come in. May be dropped while it waits for the next: nothing is lost.
pub(crate) struct Frames {
    read: ReadHalf<Stream>,
    held: Vec<u8>,
}

impl Frames {
    pub(crate) fn new(read: ReadHalf<Stream>) -> Frames {
        Frames {
            read,
            held: Vec::new(),
        }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Result<Frame, Lost> {
        loop {
            if let Some(frame) = self.held()? {
                return Ok(frame);
            }
            match self.read.read_buf(&mut self.held).await {
                Ok(0) => return Err(Lost::Closed),
                Ok(_) => {}
                Err(error) => return Err(Lost::Broken(error)),
            }
        }
    }

    fn held(&mut self) -> Result<Option<Frame>, Lost> {
        let Some((head, rest)) = self.held.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(Lost::Bad(Bad::Many));
        }
        let Some(bytes) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::read(bytes).map_err(Lost::Bad)?;
        self.held.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// The host of an address.
pub(crate) fn host(name: &str) -> &str {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// One more frame that was none.
pub(crate) fn count_bad(core: &Core, lost: &Lost) {
    if matches!(lost, Lost::Bad(_)) {
        Tallies::one(&core.tallies.bad_frames);
    }
}
