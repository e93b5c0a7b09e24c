//! A few of the latest requests, to try a change on before it is made, and a count of failures while
//! a change waits for its confirmation.
//!
//! Of a request its method, host and path are kept, the names of its query's arguments without their
//! values, the header fields that the configuration looks at and that hold no secret
//! ([`LookedAt`](crate::config::looked_at::LookedAt)), the route that took it and the status; no body, no address. At most one in ten
//! milliseconds is taken, so a busy gateway samples and a quiet one keeps everything. To a request that is
//! not taken it is two loads of memory that nobody writes to.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use lockgate_plugin::request::Work;
use lockgate_plugin::{HeaderKey, ReqView};

/// Between two requests that are kept.
const STEP: Duration = Duration::from_millis(10);
/// The longest target that is kept.
const LONGEST_TARGET: usize = 1024;
/// The longest host that is kept: that of a name, and a port.
const LONGEST_HOST: usize = 262;

/// See the module.
pub struct Recent {
    start: Instant,
    /// Milliseconds from the start before which no request is kept.
    next: AtomicU64,
    most: usize,
    kept: Mutex<VecDeque<Sample>>,
    counts: AtomicBool,
    count: ArcSwapOption<Count>,
}

/// The longest value of a field that is kept, and how many fields.
const LONGEST_VALUE: usize = 256;
const MOST_FIELDS: usize = 8;

/// A request that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The method.
    pub method: Box<str>,
    /// The host, as it was sent.
    pub host: Box<str>,
    /// The path, and the names of arguments.
    pub target: Box<str>,
    /// Header fields, of those that the configuration looks at.
    pub fields: Box<[(Box<str>, Box<str>)]>,
    /// The route that took it.
    pub route: Option<Arc<str>>,
    /// What was answered.
    pub status: u16,
}

impl Sample {
    /// As a line: `GET http://a.test/b?c=`.
    pub fn line(&self) -> String {
        format!("{} http://{}{}", self.method, self.host, self.target)
    }

    /// As a request to try changes on: with its header fields, where it has any, as JSON.
    pub fn question(&self) -> String {
        if self.fields.is_empty() {
            return self.line();
        }
        let url = format!("http://{}{}", self.host, self.target);
        serde_json::json!({ "method": self.method, "url": url, "headers": self.fields }).to_string()
    }
}

/// Answers, and how many of them were 5xx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Share {
    /// Answers.
    pub answers: u64,
    /// 5xx.
    pub errors: u64,
}

impl Share {
    /// Errors in percent.
    pub fn percent(self) -> f64 {
        if self.answers == 0 {
            return 0.0;
        }
        self.errors as f64 * 100.0 / self.answers as f64
    }

    fn add(&mut self, status: u16) {
        self.answers += 1;
        self.errors += u64::from(status >= 500);
    }
}

/// What is counted at the moment.
struct Count {
    /// The change it is for.
    of: u64,
    routes: Routes,
    answers: AtomicU64,
    errors: AtomicU64,
}

/// Which routes; without a list all.
pub struct Routes(Option<HashSet<String>>);

impl Routes {
    /// These, or all.
    pub fn new(ids: Option<&[String]>) -> Routes {
        Routes(ids.map(|ids| ids.iter().cloned().collect()))
    }

    fn has(&self, route: Option<&str>) -> bool {
        match (&self.0, route) {
            (None, _) => true,
            (Some(ids), Some(id)) => ids.contains(id),
            (Some(_), None) => false,
        }
    }
}

impl Recent {
    /// Keeps at most so many.
    pub fn new(most: usize) -> Recent {
        Recent {
            start: Instant::now(),
            next: AtomicU64::new(0),
            most,
            kept: Mutex::default(),
            counts: AtomicBool::new(false),
            count: ArcSwapOption::empty(),
        }
    }

    /// A request was answered.
    pub fn note(&self, req: &dyn ReqView, work: &Work, looked_at: &[HeaderKey]) {
        if self.counts.load(Ordering::Relaxed)
            && let Some(count) = &*self.count.load()
        {
            count.note(work);
        }
        let Some(finished) = work.finished.filter(|_| self.most > 0) else {
            return;
        };
        let at = finished.saturating_duration_since(self.start).as_millis();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let next = self.next.load(Ordering::Relaxed);
        if at < next {
            return;
        }
        let after = at.saturating_add(STEP.as_millis() as u64);
        let won = self
            .next
            .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            self.keep(req, work, looked_at);
        }
    }

    fn keep(&self, req: &dyn ReqView, work: &Work, looked_at: &[HeaderKey]) {
        let Some(sample) = sample(req, work, looked_at) else {
            return;
        };
        // Whoever reads the list holds it for a moment: this request is not worth waiting.
        let Ok(mut kept) = self.kept.try_lock() else {
            return;
        };
        if kept.len() >= self.most {
            kept.pop_front();
        }
        kept.push_back(sample);
    }

    /// What is kept, the oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    /// How requests to some routes were answered that are kept.
    pub fn share(&self, routes: &Routes) -> Share {
        let mut share = Share::default();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let of = kept.iter().filter(|s| routes.has(s.route.as_deref()));
        of.for_each(|sample| share.add(sample.status));
        share
    }

    /// Counts answers of some routes from now on, for a change; gives what was counted for it.
    pub fn count(&self, of: u64, routes: impl FnOnce() -> Routes) -> Share {
        if let Some(count) = self.count.load().as_ref().filter(|count| count.of == of) {
            return Share {
                answers: count.answers.load(Ordering::Relaxed),
                errors: count.errors.load(Ordering::Relaxed),
            };
        }
        self.count.store(Some(Arc::new(Count {
            of,
            routes: routes(),
            answers: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        })));
        self.counts.store(true, Ordering::Relaxed);
        Share::default()
    }

    /// Counts nothing any more.
    pub fn stop(&self) {
        self.counts.store(false, Ordering::Relaxed);
        self.count.store(None);
    }
}

impl Count {
    fn note(&self, work: &Work) {
        if self.routes.has(work.route.as_ref().map(|route| &*route.id)) {
            self.answers.fetch_add(1, Ordering::Relaxed);
            if work.status >= 500 {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// `None` for what is too long or no text: a part of it would be another request.
fn sample(req: &dyn ReqView, work: &Work, looked_at: &[HeaderKey]) -> Option<Sample> {
    let target = std::str::from_utf8(req.target()).ok()?;
    let host = std::str::from_utf8(req.authority()).ok()?;
    if target.len() > LONGEST_TARGET || host.len() > LONGEST_HOST {
        return None;
    }
    let since = work.timing.wall.duration_since(std::time::UNIX_EPOCH);
    Some(Sample {
        at: since.map_or(0, |since| since.as_millis() as u64),
        method: req.method().into(),
        host: host.into(),
        target: without_values(target).into(),
        fields: fields(req, looked_at),
        route: work.route.as_ref().map(|route| Arc::clone(&route.id)),
        status: work.status,
    })
}

/// The fields that are looked at and there. One that is too long or no text is left out.
fn fields(req: &dyn ReqView, looked_at: &[HeaderKey]) -> Box<[(Box<str>, Box<str>)]> {
    let field = |key: &HeaderKey| {
        let value = req
            .header(key)
            .filter(|value| value.len() <= LONGEST_VALUE)?;
        Some((key.lower().into(), std::str::from_utf8(value).ok()?.into()))
    };
    looked_at
        .iter()
        .filter_map(field)
        .take(MOST_FIELDS)
        .collect()
}

/// A target whose arguments have lost their values: they may be secrets.
fn without_values(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else {
        return target.to_owned();
    };
    let names = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}="),
        // Without a name it is all value.
        None => String::new(),
    });
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    format!("{path}?{}", names.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_arguments_are_not_kept() {
        let check = |target: &str, expected: &str| assert_eq!(without_values(target), expected);
        check("/a", "/a");
        check("/a?", "/a?");
        check("/a?b=secret&c=&d=1=2", "/a?b=&c=&d=");
        check("/a?secret", "/a?");
        check("/a?b=1&secret&c=2", "/a?b=&c=");
    }
}
