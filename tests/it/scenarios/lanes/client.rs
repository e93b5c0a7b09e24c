//! A client that sends bytes as they are and reads answers strictly.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::reference::{self, Ends, Field, Found, Framing};

/// How long an answer that has to come may take: a slow machine, and no more.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one that must not come is waited for.
const NONE: Duration = Duration::from_millis(2);

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Talk {
    pub(super) answers: Vec<Answer>,
    /// Fields of interim answers.
    pub(super) interim: Vec<Field>,
    /// The gateway closed the connection.
    pub(super) closed: bool,
    /// The last answer did not end as its framing says.
    pub(super) cut: bool,
    /// It was waited for an answer or the end, in vain.
    pub(super) silent: bool,
    /// What is no answer.
    pub(super) broken: Option<String>,
}

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: Vec<Field>,
}

impl Answer {
    /// The gateway took the request for one that breaks the rules.
    pub(super) fn refuses(&self) -> bool {
        self.status >= 400
    }

    pub(super) fn target(&self) -> Option<&[u8]> {
        reference::values(&self.fields, b"x-target")
            .first()
            .copied()
    }
}

/// What a client waits for.
pub(super) struct Wanted<'a> {
    /// The methods of the requests that are to be answered.
    pub(super) methods: Vec<&'a [u8]>,
    /// Then the connection is to be closed.
    pub(super) close: bool,
}

/// Sends the pieces, each in a segment of its own as far as the kernel allows, and reads.
pub(super) async fn talk(to: SocketAddr, pieces: &[&[u8]], wanted: &Wanted<'_>) -> Result<Talk> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (mut read, mut write) = stream.into_split();
    let sending = async {
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // A gateway that refuses does not read on.
            if write.write_all(piece).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        let mut talk = Talk::default();
        let mut buf = Vec::new();
        let until = Instant::now() + ANSWER;
        loop {
            while talk.broken.is_none() && !buf.is_empty() {
                match next(&buf, &talk, wanted) {
                    Next::More => break,
                    Next::Broken(why) => {
                        let text = super::grammar::readable(&buf, "");
                        talk.broken = Some(format!("{why}:\n{text}"));
                    }
                    Next::Answer(answer, used) if answer.status < 200 => {
                        talk.interim.extend(answer.fields);
                        buf.drain(..used);
                    }
                    Next::Answer(answer, used) => {
                        talk.answers.push(answer);
                        buf.drain(..used);
                    }
                }
            }
            if talk.broken.is_some() {
                return talk;
            }
            let enough = talk.answers.len() >= wanted.methods.len() && !wanted.close;
            let until = if enough { Instant::now() + NONE } else { until };
            match timeout_at(until, read.read_buf(&mut buf)).await {
                Err(_) => {
                    talk.silent = !enough;
                    return talk;
                }
                Ok(Ok(1..)) => {}
                Ok(_) => {
                    talk.closed = true;
                    finish(&mut talk, &buf, wanted);
                    return talk;
                }
            }
        }
    };
    let (talk, ()) = tokio::join!(reading, sending);
    Ok(talk)
}

enum Next {
    More,
    Broken(&'static str),
    Answer(Answer, usize),
}

fn method<'a>(talk: &Talk, wanted: &Wanted<'a>) -> &'a [u8] {
    wanted
        .methods
        .get(talk.answers.len())
        .copied()
        .unwrap_or(b"GET")
}

/// The answer that `buf` begins with, body and all.
fn next(buf: &[u8], talk: &Talk, wanted: &Wanted<'_>) -> Next {
    let head = match reference::answer(buf, Ends::CrLf) {
        Found::Partial => return Next::More,
        Found::Refused(why) => return Next::Broken(why),
        Found::Whole(head) => head,
    };
    let bodiless = matches!(head.status, 100..200 | 204 | 304) || method(talk, wanted) == b"HEAD";
    let end = match head.framing {
        _ if bodiless => head.head,
        Framing::None => head.head,
        Framing::Close => return Next::More,
        Framing::Length(length) => match usize::try_from(length) {
            Ok(length) if buf.len() - head.head >= length => head.head + length,
            _ => return Next::More,
        },
        Framing::Chunked => match reference::chunks(buf, head.head) {
            Ok((_, end)) => end,
            Err(None) => return Next::More,
            Err(Some(why)) => return Next::Broken(why),
        },
    };
    let answer = Answer {
        status: head.status,
        fields: head.fields,
    };
    Next::Answer(answer, end)
}

/// What is left when the gateway has closed.
fn finish(talk: &mut Talk, buf: &[u8], _wanted: &Wanted<'_>) {
    if buf.is_empty() {
        return;
    }
    if let Found::Whole(head) = reference::answer(buf, Ends::CrLf) {
        talk.cut = head.framing != Framing::Close;
        talk.answers.push(Answer {
            status: head.status,
            fields: head.fields,
        });
    } else {
        talk.cut = true;
    }
}
