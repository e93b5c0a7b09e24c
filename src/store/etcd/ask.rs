//! Asking servers of etcd: one after the other where that does no harm, else one alone.

use std::future::Future;
use std::time::{Duration, Instant};

use etcd_client::{Client, Error};

use super::members::{Members, is_of_member};

/// Why a request has no answer.
pub(super) enum Failed {
    Etcd(Error),
    Late(Duration),
    /// A write whose answer is missing: it may have been done.
    Uncertain(Box<Failed>),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Etcd(error)
    }
}

impl Failed {
    pub(super) fn is_of_member(&self) -> bool {
        match self {
            Failed::Etcd(error) => is_of_member(error),
            Failed::Late(_) | Failed::Uncertain(_) => true,
        }
    }

    /// What it means for a write.
    pub(super) fn of_a_write(self) -> Failed {
        match self.is_of_member() {
            true => Failed::Uncertain(Box::new(self)),
            false => self,
        }
    }
}

/// The reason that is given for it.
pub(super) fn reason(failed: Failed) -> Box<dyn std::error::Error + Send + Sync> {
    match failed {
        Failed::Etcd(error) => match limit_of(&error.to_string()) {
            Some(limit) => format!("{error} ({limit})").into(),
            None => error.into(),
        },
        Failed::Late(late) => format!("no answer within {late:?}").into(),
        Failed::Uncertain(failed) => format!(
            "it is uncertain whether it was written: {}",
            reason(*failed)
        )
        .into(),
    }
}

/// Which setting of etcd a write was too large for.
fn limit_of(error: &str) -> Option<&'static str> {
    if error.contains("too many operations in txn request") {
        return Some("this etcd has a lower --max-txn-ops than 128, its default");
    }
    error
        .contains("request is too large")
        .then_some("this etcd has a lower --max-request-bytes than 1.5 MiB, its default")
}

/// Has one server after the other do something that does no harm when it is done twice. Gives the
/// number of the one that did it, too.
pub(super) async fn any<T, F: Future<Output = Result<T, Error>>>(
    members: &Members,
    request: impl Fn(Client) -> F,
) -> Result<(usize, T), Failed> {
    let mut last = Failed::Late(Duration::ZERO);
    for at in members.order(Instant::now()) {
        match one(members, at, members.attempt(), &request).await {
            Err(error) if error.is_of_member() => last = error,
            done => return done.map(|done| (at, done)),
        }
    }
    Err(last)
}

/// Has one server do something.
pub(super) async fn one<T, F: Future<Output = Result<T, Error>>>(
    members: &Members,
    at: usize,
    limit: Duration,
    request: impl FnOnce(Client) -> F,
) -> Result<T, Failed> {
    let work = async { request(members.client(at).await?).await };
    let done = match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(Failed::Etcd),
        Err(_) => Err(Failed::Late(limit)),
    };
    match &done {
        Err(error) if error.is_of_member() => members.failed(at, Instant::now()),
        _ => members.answered(at),
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_etcd_are_named() {
        let check = |error: &str, setting: Option<&str>| {
            let got = limit_of(error);
            assert_eq!(got.is_some(), setting.is_some(), "{error}");
            assert!(
                got.unwrap_or_default()
                    .contains(setting.unwrap_or_default()),
                "{error}"
            );
        };
        check(
            "etcdserver: too many operations in txn request",
            Some("--max-txn-ops"),
        );
        check(
            "etcdserver: request is too large",
            Some("--max-request-bytes"),
        );
        check("etcdserver: request timed out", None);
    }
}
