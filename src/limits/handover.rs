//! A successor gets what the limits of a running process count in.
//!
//! The running process listens on a socket beside the one for the hand-over of listening sockets. A
//! successor connects when it starts, before it builds its plugins: keys are hashed with the secret that
//! comes along. From then on both count in the same words, so it does not matter when which of them serves, nor
//! whether the successor fails. Whoever connects has to be of the same user.
//!
//! ```text
//! | magic 8 | layout 4 | 0 4 | size of the table 8 | secret 32 | monotonic time 8 | time 8 | probe 8 |
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_limit::{Engine, Nanos, Origin};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::time::{ClockId, clock_gettime};

use super::memory::{Memory, Unusable};
use super::{Counting, now};

/// What the message begins with.
const MAGIC: [u8; 8] = *b"lglimits";
/// Bytes of a message.
const LENGTH: usize = 80;
/// How long the other process may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// After a connection could not be taken, as when there are no file descriptors: at once it would fail again.
const PAUSE: Duration = Duration::from_millis(200);

/// Why nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Nobody is there, or it does not answer.
    #[error("nobody hands it over: {0}")]
    Io(#[from] io::Error),
    /// It is a process of another user.
    #[error("the process there is of another user")]
    Stranger,
    /// It says something else.
    #[error("the process there says something else")]
    Message,
    /// It counts in another way.
    #[error("the running version counts in another way")]
    Layout,
    /// It gives something that cannot be used.
    #[error(transparent)]
    Memory(#[from] Unusable),
}

impl From<rustix::io::Errno> for NotTaken {
    fn from(error: rustix::io::Errno) -> NotTaken {
        NotTaken::Io(error.into())
    }
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    layout: u32,
    table_bytes: u64,
    secret: [u64; 4],
    monotonic: u64,
    time: Nanos,
    probe: u64,
}

impl Message {
    fn bytes(&self) -> [u8; LENGTH] {
        let [a, b, c, d] = self.secret;
        let numbers = [
            u64::from(self.layout),
            self.table_bytes,
            a,
            b,
            c,
            d,
            self.monotonic,
            self.time,
            self.probe,
        ];
        let mut out = [0; LENGTH];
        out[..8].copy_from_slice(&MAGIC);
        for (place, number) in out[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    fn read(bytes: &[u8; LENGTH]) -> Option<Message> {
        let mut words = bytes.as_chunks::<8>().0.iter();
        if *words.next()? != MAGIC {
            return None;
        }
        let mut number = || words.next().map(|bytes| u64::from_le_bytes(*bytes));
        Some(Message {
            layout: u32::try_from(number()?).ok()?,
            table_bytes: number()?,
            secret: [number()?, number()?, number()?, number()?],
            monotonic: number()?,
            time: number()?,
            probe: number()?,
        })
    }
}

/// Gives successors what limits count in, from now on. Where that is not possible it is told, and the
/// process goes on without.
pub(crate) fn serve(sock: &Path, engine: Arc<Engine>, (memory, table_bytes): (Memory, usize)) {
    let started = listen(sock).and_then(|listener| {
        let serve = move || {
            let give = |stream: &UnixStream| give(stream, &engine, (&memory, table_bytes));
            #[allow(clippy::disallowed_methods)]
            // A thread of its own that has nothing else to do.
            serve_all(listener.incoming(), give, || std::thread::sleep(PAUSE));
        };
        let thread = std::thread::Builder::new().name("limits".into());
        thread.spawn(serve)
    });
    if let Err(error) = started {
        tracing::warn!(
            sock = %sock.display(),
            %error,
            "an upgrade will start all limits anew: nobody can ask for what was counted"
        );
    }
}

/// Gives everybody who comes; pauses when nobody could be let in.
fn serve_all<S>(
    incoming: impl Iterator<Item = io::Result<S>>,
    give: impl Fn(&S) -> Result<(), NotTaken>,
    mut pause: impl FnMut(),
) {
    for stream in incoming {
        let given = stream.map_or_else(
            |error| {
                pause();
                Err(error.into())
            },
            |stream| give(&stream),
        );
        match given {
            Ok(()) => tracing::info!("a successor counts limits in the same memory"),
            Err(error) => tracing::warn!(%error, "limits were not handed over"),
        }
    }
}

fn listen(sock: &Path) -> io::Result<UnixListener> {
    // What the process before left there: it needs it no more.
    let _ = std::fs::remove_file(sock);
    let listener = UnixListener::bind(sock)?;
    std::fs::set_permissions(sock, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn give(
    stream: &UnixStream,
    engine: &Engine,
    (memory, table_bytes): (&Memory, usize),
) -> Result<(), NotTaken> {
    stream.set_write_timeout(Some(PATIENCE))?;
    of_same_user(stream)?;
    let message = Message {
        layout: Engine::LAYOUT,
        table_bytes: table_bytes as u64,
        secret: memory.secret(),
        monotonic: monotonic(),
        time: now(engine),
        probe: engine.probe(),
    };
    let files = [memory.file()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let bytes = message.bytes();
    // So short a message is sent whole or not at all.
    rustix::net::sendmsg(
        stream,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Asks the running process for what its limits count in.
pub(super) fn take(sock: &Path, table_bytes: usize) -> Result<Counting, NotTaken> {
    let stream = UnixStream::connect(sock)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    of_same_user(&stream)?;
    let (message, file) = receive(&stream)?;
    if message.layout != Engine::LAYOUT {
        return Err(NotTaken::Layout);
    }
    if message.table_bytes != table_bytes as u64 {
        return Err(Unusable::Size.into());
    }
    let memory = Memory::given(file, table_bytes)?;
    let passed = monotonic().saturating_sub(message.monotonic);
    let origin = Origin {
        secret: message.secret,
        time: (Instant::now(), message.time.saturating_add(passed)),
    };
    let engine = Engine::over(memory.words(), table_bytes, origin).ok_or(Unusable::Size)?;
    if engine.probe() != message.probe {
        return Err(NotTaken::Layout);
    }
    Ok(Counting {
        engine,
        memory: Some(memory.of(message.secret)),
    })
}

fn receive(stream: &UnixStream) -> Result<(Message, OwnedFd), NotTaken> {
    let mut bytes = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    let message = Message::read(&bytes).filter(|_| received.bytes == LENGTH);
    message.zip(file).ok_or(NotTaken::Message)
}

fn of_same_user(stream: &UnixStream) -> Result<(), NotTaken> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(NotTaken::Stranger);
    }
    Ok(())
}

/// The clock that all processes of a machine share and nobody sets, in nanoseconds.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use lockgate_limit::{Algorithm, Ask, Rule};

    use super::*;
    use crate::limits::counting;

    const BYTES: usize = 1 << 16;

    fn sock(name: &str) -> std::path::PathBuf {
        let name = format!("lockgate-limits-{}-{name}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        path
    }

    fn take_one(engine: &Engine, name: &str) -> bool {
        let fixed = Algorithm::Fixed { aligned: false };
        let rule = Rule::new(fixed, 3, Duration::from_secs(600)).unwrap();
        let key = engine.key(engine.scope(&["r"])).bytes(name.as_bytes());
        let ask = Ask {
            rule: &rule,
            key: key.done(),
            cost: 1,
        };
        engine.take(&ask, now(engine)).0.allowed
    }

    #[test]
    fn both_count_in_the_same_words() {
        let path = sock("both");
        let first = counting(BYTES, None);
        let (engine, memory) = (Arc::new(first.engine), first.memory.unwrap());
        assert!(take_one(&engine, "a"));
        serve(&path, Arc::clone(&engine), (memory, BYTES));
        let taken = take(&path, BYTES).unwrap();
        let next = taken.engine;
        assert!(now(&next).abs_diff(now(&engine)) < 1_000_000_000);
        assert!(take_one(&next, "a"));
        assert!(take_one(&engine, "a"));
        assert!(!take_one(&next, "a") && !take_one(&engine, "a"));
        assert!(take_one(&next, "b"));
        // Another size begins anew, and so does everything without a process to ask.
        let error = take(&path, BYTES * 2).err().unwrap();
        assert!(
            error.to_string().contains("table_bytes was changed"),
            "{error}"
        );
        let _ = std::fs::remove_file(&path);
        assert!(take_one(&counting(BYTES, Some(&path)).engine, "a"));
    }

    #[test]
    fn who_cannot_be_let_in_makes_no_loop_without_a_pause() {
        let full = || Err(io::Error::from_raw_os_error(24));
        let incoming = [full(), Ok(1), full(), Ok(2), full()].into_iter();
        let (given, mut pauses) = (std::cell::RefCell::default(), 0);
        let give = |stream: &i32| {
            Vec::push(&mut given.borrow_mut(), *stream);
            Err(NotTaken::Stranger)
        };
        serve_all(incoming, give, || pauses += 1);
        assert_eq!((given.into_inner(), pauses), (vec![1, 2], 3));
    }

    #[test]
    fn what_is_no_hand_over_is_refused() {
        let said = |bytes: &'static [u8]| {
            let path = sock("no");
            let listener = UnixListener::bind(&path).unwrap();
            let answer = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                std::io::Write::write_all(&mut stream, bytes).unwrap();
            });
            let error = take(&path, BYTES).err().unwrap();
            answer.join().unwrap();
            let _ = std::fs::remove_file(&path);
            error.to_string()
        };
        for bytes in [&b""[..], b"x", &[0; LENGTH], &[b'l'; 4096]] {
            assert_eq!(said(bytes), "the process there says something else");
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = Message {
            layout: 1,
            table_bytes: 2,
            secret: [3, 4, 5, 6],
            monotonic: 7,
            time: 8,
            probe: 9,
        };
        let mut bytes = message.bytes();
        assert_eq!(Message::read(&bytes), Some(message));
        bytes[12] = 1;
        assert_eq!(Message::read(&bytes), None, "no such layout");
        bytes[0] = 0;
        assert_eq!(Message::read(&bytes), None);
    }
}
