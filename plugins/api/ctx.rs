//! What a plugin sees during one call.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::expr::Expr;
use crate::header::HeaderKey;
use crate::request::{ConsumerCredential, Consumers, Limited, Work};
use crate::var::{Lookup, Var, VarSource, VarValue};
use crate::view::{ReqView, RespView};

/// What the process gives to a request: time and the snapshot's consumers.
pub trait Env: Send + Sync {
    /// The consumers of the request's snapshot.
    fn consumers(&self) -> &dyn Consumers;
    /// A timer that ends after `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Monotonic time.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Wall clock time.
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The request and response as seen by one plugin during one call.
///
/// Reading shows the request with the changes that plugins made so far; changing records an edit
/// that the proxy applies once, when it writes the head.
pub struct Ctx<'a> {
    req: &'a dyn ReqView,
    resp: Option<&'a dyn RespView>,
    work: &'a mut Work,
    env: &'a dyn Env,
    /// Identity of the plugin instance in this call: the key of its locals.
    link: usize,
}

impl<'a> Ctx<'a> {
    /// Made by the chain (and by [`testing`](crate::testing)) for each run of a phase.
    pub fn new(
        req: &'a dyn ReqView,
        resp: Option<&'a dyn RespView>,
        work: &'a mut Work,
        env: &'a dyn Env,
    ) -> Ctx<'a> {
        Ctx {
            req,
            resp,
            work,
            env,
            link: 0,
        }
    }

    /// For the chain: which plugin instance is about to run.
    pub fn enter(&mut self, link: usize) {
        self.link = link;
    }

    // ---- the request -----------------------------------------------------------------------

    /// The method, after edits.
    pub fn method(&self) -> &str {
        match &self.work.request.method {
            Some(method) => std::str::from_utf8(method).unwrap_or(""),
            None => self.req.method(),
        }
    }

    /// The path in its normal form (decoded, dot segments and double slashes resolved), after edits.
    pub fn uri(&self) -> &str {
        self.work.target.uri(self.req.target())
    }

    /// The query without `?`, after edits; `None` when there is none.
    pub fn args(&self) -> Option<&str> {
        self.work.target.args(self.req.target())
    }

    /// The normalised path and the query as the client sent it; not changed by edits.
    pub fn request_uri(&self) -> Cow<'_, str> {
        self.work.target.request_uri(self.req.target())
    }

    /// `http` or `https`: how the client's connection came in.
    pub fn scheme(&self) -> &'static str {
        if self.work.conn.tls.is_some() {
            "https"
        } else {
            "http"
        }
    }

    /// The host the client asked for: lower case, no port.
    pub fn host(&self) -> Cow<'_, str> {
        crate::target::host_of(self.req.authority())
    }

    /// The client's address.
    pub fn client_ip(&self) -> IpAddr {
        self.work.client.ip()
    }

    /// The first value of a request header, after edits.
    pub fn header(&self, key: &HeaderKey) -> Option<&[u8]> {
        self.work.request.headers.first(key, self.req.header(key))
    }

    /// Every value of a request header, after edits.
    pub fn each_header(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        self.work
            .request
            .headers
            .each(key, |f| self.req.each(key, f), f);
    }

    /// The first value of a query argument, percent-decoded; empty for `?name` without a value.
    pub fn arg(&self, name: &str) -> Option<Cow<'_, str>> {
        crate::target::arg(self.args()?, name)
    }

    /// Sets a header of the upstream request.
    pub fn set_header(&mut self, key: &HeaderKey, value: impl Into<Bytes>) {
        self.work.request.headers.set(key, value.into());
    }

    /// Adds a header value to the upstream request.
    pub fn append_header(&mut self, key: &HeaderKey, value: impl Into<Bytes>) {
        self.work.request.headers.append(key, value.into());
    }

    /// Removes a header from the upstream request.
    pub fn remove_header(&mut self, key: &HeaderKey) {
        self.work.request.headers.remove(key);
    }

    /// Sends another method upstream.
    pub fn set_method(&mut self, method: Bytes) {
        self.work.request.method = Some(method);
    }

    /// Sends another `Host` upstream, unless the upstream's `pass_host` decides otherwise.
    pub fn set_host(&mut self, host: impl Into<Bytes>) {
        self.work.request.host = Some(host.into());
    }

    /// Sends another path and query upstream. `path` is decoded text and is encoded here;
    /// `args` is used as it is, without `?`. Later plugins see both; the match is not repeated.
    pub fn set_uri(&mut self, path: &str, args: Option<&str>) {
        self.work.request.target = Some(self.work.target.rewrite(path, args));
    }

    /// Sends this exact, already encoded target upstream; what later plugins see as the path does
    /// not change. For `use_real_request_uri_unsafe` and edits of the query alone.
    pub fn set_raw_target(&mut self, target: impl Into<Bytes>) {
        self.work.request.target = Some(target.into());
    }

    /// The request target as the client sent it, undecoded.
    pub fn raw_target(&self) -> &[u8] {
        self.req.target()
    }

    /// Attaches a consumer and sets the headers that name it; values the client sent are cleared.
    pub fn set_consumer(&mut self, found: &Arc<ConsumerCredential>) {
        let names = crate::plugin::consumer_headers();
        let headers = &mut self.work.request.headers;
        headers.set(
            &names.username,
            Bytes::copy_from_slice(found.consumer.username.as_bytes()),
        );
        match &found.credential_id {
            Some(id) => headers.set(&names.credential, Bytes::copy_from_slice(id.as_bytes())),
            None => headers.remove(&names.credential),
        }
        match found.consumer.labels.get("custom_id") {
            Some(id) => headers.set(&names.custom_id, Bytes::copy_from_slice(id.as_bytes())),
            None => headers.remove(&names.custom_id),
        }
        self.work.consumer = Some(Arc::clone(found));
    }

    /// The consumer, once a plugin has attached one.
    pub fn consumer(&self) -> Option<&Arc<ConsumerCredential>> {
        self.work.consumer.as_ref()
    }

    /// Looks up a credential in the request's snapshot.
    pub fn find_credential(&self, plugin: &str, key: &str) -> Option<Arc<ConsumerCredential>> {
        self.env.consumers().by_key(plugin, key).cloned()
    }

    /// Looks up a consumer by name, for `anonymous_consumer`.
    pub fn find_consumer(&self, name: &str) -> Option<Arc<ConsumerCredential>> {
        self.env.consumers().by_name(name).cloned()
    }

    // ---- the response ----------------------------------------------------------------------

    /// The status: the edited one, else the response's, else 0 before a response is known.
    pub fn status(&self) -> u16 {
        let own = self.resp.map_or(self.work.status, |resp| resp.status());
        self.work.response.status.unwrap_or(own)
    }

    /// The first value of a response header, after edits; `None` before a response is known.
    pub fn resp_header(&self, key: &HeaderKey) -> Option<&[u8]> {
        let original = self.resp.and_then(|resp| resp.header(key));
        self.work.response.headers.first(key, original)
    }

    /// Every value of a response header, after edits.
    pub fn each_resp_header(&self, key: &HeaderKey, f: &mut dyn FnMut(&[u8])) {
        let originals = |f: &mut dyn FnMut(&[u8])| {
            if let Some(resp) = self.resp {
                resp.each(key, f);
            }
        };
        self.work.response.headers.each(key, originals, f);
    }

    /// Sets a response header. In phases before `header_filter` it is kept for the answer,
    /// whoever makes it.
    pub fn set_resp_header(&mut self, key: &HeaderKey, value: impl Into<Bytes>) {
        self.work.response.headers.set(key, value.into());
    }

    /// Adds a response header value.
    pub fn append_resp_header(&mut self, key: &HeaderKey, value: impl Into<Bytes>) {
        self.work.response.headers.append(key, value.into());
    }

    /// Removes a response header.
    pub fn remove_resp_header(&mut self, key: &HeaderKey) {
        self.work.response.headers.remove(key);
    }

    /// Changes the response status, 200 to 599.
    pub fn set_status(&mut self, status: u16) {
        self.work.response.status = Some(status);
    }

    /// Says in `header_filter` that this plugin's body filter changes the length.
    pub fn will_resize_body(&mut self) {
        self.work.response.resize = true;
    }

    // ---- everything else -------------------------------------------------------------------

    /// The value of a variable.
    pub fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        self.lookup().into_var(var)
    }

    /// Variables of this request, for [`Expr`] and [`Template`](crate::Template).
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup {
            req: self.req,
            resp: self.resp,
            work: self.work,
        }
    }

    /// Whether an expression holds.
    pub fn matches(&self, expr: &Expr) -> bool {
        expr.eval(&self.lookup())
    }

    /// This plugin's own value for this request; made on first use, one box.
    pub fn local<T: Any + Send + Sync + Default>(&mut self) -> &mut T {
        self.work.local(self.link, T::default)
    }

    /// This plugin's own value for this request, if it made one.
    pub fn get_local<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.work.get_local(self.link)
    }

    /// A future that ends after `duration`, for [`Step::Wait`](crate::Step::Wait).
    pub fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.env.sleep(duration)
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        self.env.now()
    }

    /// Monotonic time as of when the request arrived or last went on after it had to wait. Late by
    /// what was worked since, and unlike [`now`](Ctx::now) it reads no clock.
    pub fn tick(&self) -> Instant {
        self.work.tick
    }

    /// Wall clock time.
    pub fn wall(&self) -> SystemTime {
        self.env.wall()
    }

    /// What is known about the request; for reading only.
    pub fn work(&self) -> &Work {
        self.work
    }

    /// Says what a limit said, for logs. Of several the one that refused stays, else the one with the least
    /// left.
    pub fn set_limited(&mut self, limited: Limited) {
        let known = &mut self.work.limited;
        if known.as_ref().is_none_or(|known| limited.is_tighter(known)) {
            *known = Some(limited);
        }
    }

    /// Sets the request id, for logs and later plugins.
    pub fn set_request_id(&mut self, id: Bytes) {
        self.work.request_id = Some(id);
    }

    /// For the chain: the state with its edits.
    pub fn work_mut(&mut self) -> &mut Work {
        self.work
    }

    /// The original head, for plugins that copy it whole.
    pub fn req_view(&self) -> &dyn ReqView {
        self.req
    }
}

impl VarSource for Ctx<'_> {
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        Ctx::var(self, var)
    }
}

/// A piece of the response body on its way through the body filters.
pub struct Chunk {
    /// The bytes; empty when there are none in this call.
    pub data: Bytes,
    /// Whether this is the last call.
    pub last: bool,
}

/// Remembered results of `_meta.filter` expressions: each is evaluated once per request.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    seen: SmallVec<[(usize, bool); 2]>,
}

impl Gates {
    /// The remembered result for the expression with this identity, or the one `eval` gives.
    pub fn check(&mut self, identity: usize, eval: impl FnOnce() -> bool) -> bool {
        if let Some((_, open)) = self.seen.iter().find(|(id, _)| *id == identity) {
            return *open;
        }
        let open = eval();
        self.seen.push((identity, open));
        open
    }

    /// The remembered result, if there is one.
    pub fn get(&self, identity: usize) -> Option<bool> {
        self.seen
            .iter()
            .find(|(id, _)| *id == identity)
            .map(|(_, open)| *open)
    }

    /// Remembers a result.
    pub fn put(&mut self, identity: usize, open: bool) {
        self.seen.push((identity, open));
    }
}
