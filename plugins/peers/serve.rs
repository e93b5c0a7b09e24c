//! The listener for peers: answers what they ask.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::core::{Core, node_id};
use crate::figures::Tallies;
use crate::frame::{Frame, Hello, Put, Question, Reply};
use crate::ledger::{Asked, EXPECTED};
use crate::link::{CONNECT_LIMIT, Frames, Lost, WRITE_LIMIT, count_bad, host};
use crate::members::nanos;
use crate::place::MOST_NODES;
use crate::secure::{Secure, Stream};
use crate::wire::Bad;

/// Connections at once that have yet to prove whose they are. Those that have are one for each peer.
const MOST_UNPROVEN: usize = 2 * MOST_NODES;
/// Those of one address.
const MOST_OF_ONE: usize = 16;
/// Starts of one gateway that may ask at once: one that ends, and its successor.
const MOST_STARTS: usize = 2;
/// Between two lines of the log about connections that came to nothing: anybody can make them.
const QUIET: Duration = Duration::from_secs(1);
/// Questions about counts that are expected.
const MOST_WAITING: usize = 4_096;
/// Frames that wait to be written to one peer. One that does not read them is given up.
const MOST_UNREAD: usize = 1_024;
/// A peer that says nothing for so long is gone: it sends a pulse each second.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a gateway that connects may be ahead of what is known here of who takes part.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(1);
/// After an error of the listener itself, such as no more open files.
const PAUSE: Duration = Duration::from_millis(50);

/// What connections share.
struct Shared {
    core: Arc<Core>,
    secure: Arc<Secure>,
    waiting: Arc<Semaphore>,
    closed: watch::Receiver<bool>,
    unproven: Unproven,
    /// The connections of each peer, the latest last, by its start: with another one it ends.
    proven: Mutex<HashMap<String, Vec<(u64, Arc<Notify>)>>>,
    /// When the log told of a refused connection.
    told: AtomicU64,
}

/// Connections that have yet to prove whose they are, by where they come from.
#[derive(Clone, Default)]
struct Unproven(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place among them.
struct Place {
    all: Unproven,
    ip: IpAddr,
}

impl Unproven {
    fn place(&self, ip: IpAddr) -> Option<Place> {
        let mut all = self.lock();
        let of_all: usize = all.values().sum();
        let of_one = all.get(&ip).copied().unwrap_or(0);
        if of_all >= MOST_UNPROVEN || of_one >= MOST_OF_ONE {
            return None;
        }
        all.insert(ip, of_one + 1);
        Some(Place {
            all: self.clone(),
            ip,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        match all.get_mut(&self.ip) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = all.remove(&self.ip),
        }
    }
}

/// Takes connections until told to close.
pub(crate) async fn serve(
    core: Arc<Core>,
    secure: Arc<Secure>,
    listener: TcpListener,
    mut closed: watch::Receiver<bool>,
) {
    let shared = Arc::new(Shared {
        core,
        secure,
        waiting: Arc::new(Semaphore::new(MOST_WAITING)),
        closed: closed.clone(),
        unproven: Unproven::default(),
        proven: Mutex::default(),
        told: AtomicU64::new(0),
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closed.wait_for(|closed| *closed) => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the listener for peers failed");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(place) = shared.unproven.place(from.ip()) else {
            Tallies::one(&shared.core.tallies.refused);
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut closed = shared.closed.clone();
            tokio::select! {
                () = connection(&shared, tcp, from, place) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        });
    }
}

/// From the handshake to the end.
async fn connection(shared: &Shared, tcp: TcpStream, from: SocketAddr, place: Place) {
    let core = &shared.core;
    let greeted = match timeout(CONNECT_LIMIT, greet(shared, tcp)).await {
        Ok(greeted) => greeted,
        Err(_) => Err(Lost::Silent),
    };
    drop(place);
    let peer = match greeted {
        Ok(peer) => peer,
        Err(lost) => {
            Tallies::one(&core.tallies.refused);
            count_bad(core, &lost);
            if shared.may_tell() {
                tell_lost(&from.to_string(), &lost);
            }
            return;
        }
    };
    let name = peer.name.clone();
    let only = shared.only(&name, peer.run);
    let lost = tokio::select! {
        lost = peer.run(shared) => lost,
        () = only.notified() => Lost::Closed,
    };
    shared.over(&name, &only);
    count_bad(core, &lost);
    tell_lost(&name, &lost);
}

fn tell_lost(peer: &str, lost: &Lost) {
    if !matches!(lost, Lost::Closed | Lost::Broken(_)) {
        let cause = std::error::Error::source(&lost).map(ToString::to_string);
        tracing::warn!(peer, error = %lost, cause, "a connection of a peer ended");
    }
}

impl Shared {
    fn proven(&self) -> MutexGuard<'_, HashMap<String, Vec<(u64, Arc<Notify>)>>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for this connection; the one of the same start makes room for it, and so does the oldest of
    /// more than [`MOST_STARTS`].
    fn only(&self, name: &str, run: u64) -> Arc<Notify> {
        let only = Arc::new(Notify::new());
        let mut proven = self.proven();
        let starts = proven.entry(name.to_owned()).or_default();
        let same = starts.iter().position(|(start, _)| *start == run);
        let too_many = (starts.len() >= MOST_STARTS).then_some(0);
        if let Some(at) = same.or(too_many) {
            let (_, other) = starts.remove(at);
            other.notify_one();
        }
        starts.push((run, Arc::clone(&only)));
        only
    }

    /// It has ended.
    fn over(&self, name: &str, only: &Arc<Notify>) {
        let mut proven = self.proven();
        if let Some(starts) = proven.get_mut(name) {
            starts.retain(|(_, other)| !Arc::ptr_eq(other, only));
            if starts.is_empty() {
                proven.remove(name);
            }
        }
    }

    fn may_tell(&self) -> bool {
        let now = self.core.nanos().max(1);
        let last = self.told.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= nanos(QUIET);
        is_due
            && self
                .told
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Who asks.
struct Peer {
    name: String,
    run: u64,
    node: u64,
    frames: Frames,
    write: WriteHalf<Stream>,
}

async fn greet(shared: &Shared, tcp: TcpStream) -> Result<Peer, Lost> {
    let core = &shared.core;
    tcp.set_nodelay(true).map_err(Lost::Connect)?;
    let stream = shared.secure.take(tcp).await.map_err(Lost::Refused)?;
    let claims = shared.secure.claims(&stream);
    let (read, mut write) = tokio::io::split(stream);
    let mut frames = Frames::new(read);
    let Frame::Hello(hello) = frames.next().await? else {
        return Err(Lost::Bad(Bad::Word(1)));
    };
    claims.check(host(&hello.name)).map_err(Lost::Refused)?;
    // Only who takes part: certificates of the same authority may have other uses.
    let until = Instant::now() + UNKNOWN_LIMIT;
    let mut known = core.news();
    while !core.knows(&hello.name) {
        if !matches!(timeout_at(until, known.changed()).await, Ok(Ok(()))) {
            return Err(Lost::Other(hello.name));
        }
    }
    // Only now: what a stranger says of epochs would stop this gateway from granting.
    core.hear(hello.epoch);
    core.was_known(&hello.name, hello.knew);
    let answer = Frame::Hello(Hello {
        name: core.name.clone(),
        run: core.run,
        knew: 0,
        epoch: core.view().epoch(),
    });
    write
        .write_all(&answer.write())
        .await
        .map_err(Lost::Broken)?;
    write.flush().await.map_err(Lost::Broken)?;
    Ok(Peer {
        node: node_id(&hello.name, hello.run),
        name: hello.name,
        run: hello.run,
        frames,
        write,
    })
}

impl Peer {
    async fn run(mut self, shared: &Shared) -> Lost {
        let mut known = shared.core.news();
        // It may have gone while it was greeted.
        known.mark_changed();
        let (out, unwritten) = mpsc::channel(MOST_UNREAD);
        let writer = tokio::spawn(write_all(self.write, unwritten));
        let node = (self.node, self.name, self.run);
        let lost = loop {
            let next = tokio::select! {
                next = timeout(SILENCE, self.frames.next()) => next,
                _ = known.changed() => {
                    let (_, name, _) = &node;
                    if shared.core.knows(name) {
                        continue;
                    }
                    break Lost::Other(name.clone());
                }
            };
            let frame = match next {
                Ok(Ok(Frame::Asks { epoch, asks })) => (epoch, asks),
                Ok(Ok(_)) => break Lost::Bad(Bad::Word(0)),
                Ok(Err(lost)) => break lost,
                Err(_) => break Lost::Silent,
            };
            let (epoch, asks) = frame;
            shared.core.hear(epoch);
            let answers = answers(shared, &node, epoch, asks, &out);
            // Answered even without an answer: it is a sign of life.
            let epoch = shared.core.view().epoch();
            let frame = Frame::Answers { epoch, answers }.write();
            if out.try_send(frame).is_err() {
                break Lost::Silent;
            }
        };
        writer.abort();
        lost
    }
}

/// What can be said at once; the rest follows by itself.
fn answers(
    shared: &Shared,
    (node, name, run): &(u64, String, u64),
    epoch: u64,
    asks: Vec<Put>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Vec<(u64, Reply)> {
    let core = &shared.core;
    let mut answers = Vec::with_capacity(asks.len());
    for Put {
        number,
        within,
        question,
    } in asks
    {
        let asked = match question {
            Question::Hand { epoch, sent, parts } => {
                Asked::Answered(core.take_over((name, *run), epoch, sent, parts))
            }
            Question::Done(by, fresh) => Asked::Answered(core.is_done(name, *run, by, fresh)),
            question => match core.ask(*node, epoch, &question) {
                Asked::Expected => {
                    let waits = Waits {
                        core: Arc::clone(core),
                        node: *node,
                        epoch,
                        number,
                        until: Instant::now() + within.min(EXPECTED),
                        question,
                        out: out.clone(),
                    };
                    match Arc::clone(&shared.waiting).try_acquire_owned() {
                        Ok(place) => {
                            tokio::spawn(async move {
                                let _place = place;
                                waits.run().await;
                            });
                            continue;
                        }
                        Err(_) => Asked::Answered(Reply::Later),
                    }
                }
                asked => asked,
            },
        };
        if let Asked::Answered(reply) = asked {
            count(core, &reply);
            answers.push((number, reply));
        }
    }
    answers
}

fn count(core: &Core, reply: &Reply) {
    match reply {
        Reply::Granted(grant) => {
            let granted = &core.tallies.granted;
            granted.fetch_add(grant.permits, Ordering::Relaxed);
        }
        Reply::Moved | Reply::Later => Tallies::one(&core.tallies.moved),
        _ => {}
    }
    Tallies::one(&core.tallies.answered);
}

/// A question about counts that are on their way.
struct Waits {
    core: Arc<Core>,
    node: u64,
    epoch: u64,
    number: u64,
    until: Instant,
    question: Question,
    out: mpsc::Sender<Vec<u8>>,
}

impl Waits {
    async fn run(self) {
        let reply = wait_for(
            &self.core,
            (self.node, self.epoch),
            &self.question,
            self.until,
        )
        .await;
        count(&self.core, &reply);
        let frame = Frame::Answers {
            epoch: self.core.view().epoch(),
            answers: vec![(self.number, reply)],
        };
        // A peer that does not read is given up by who reads it.
        let _ = self.out.try_send(frame.write());
    }
}

/// The answer, when what is expected has come, or does not come.
pub(crate) async fn wait_for(
    core: &Core,
    (node, epoch): (u64, u64),
    question: &Question,
    until: Instant,
) -> Reply {
    let mut changes = core.ledger.changes();
    loop {
        changes.mark_unchanged();
        // Nobody waits any more, so nobody is to be charged.
        if Instant::now() >= until {
            return Reply::Later;
        }
        match core.ask(node, epoch, question) {
            Asked::Answered(reply) => return reply,
            Asked::Expected => {
                if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                    return Reply::Later;
                }
            }
        }
    }
}

/// Writes frames, all that wait in one go.
async fn write_all(mut write: WriteHalf<Stream>, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut bytes) = frames.recv().await {
        while bytes.len() < crate::frame::LONGEST
            && let Ok(more) = frames.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        let written = timeout(WRITE_LIMIT, async {
            write.write_all(&bytes).await?;
            write.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            // Whoever reads notices that nobody takes frames any more.
            return;
        }
    }
}
