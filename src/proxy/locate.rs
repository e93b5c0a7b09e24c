//! From a request to its route, and from the route to where it goes: what the pipeline and
//! `lockgate explain` share.

use std::sync::Arc;

use lockgate_plugin::target::{BadTarget, MatchOptions, host_of};
use lockgate_plugin::var::Lookup;
use lockgate_plugin::{ReqView, VarSource, Work};

use super::fault::FaultKind;
use crate::config::snapshot::{Route, Snapshot, Target};
use crate::router::{Match, MatchInput, Observer};
use crate::upstream::Upstream;

/// Finds the route of a request.
///
/// # Errors
/// When the path cannot be matched.
pub fn locate<'r, O: Observer<'r, Arc<Route>>>(
    snap: &'r Snapshot,
    options: &MatchOptions,
    work: &Work,
    req: &dyn ReqView,
    observer: O,
) -> Result<Option<Match<'r, Arc<Route>>>, BadTarget> {
    let path = work.target.match_path(req.target(), options)?;
    let lookup = Lookup {
        req,
        resp: None,
        work,
    };
    let host = host_of(req.authority());
    let input = MatchInput {
        path: &path,
        host: &host,
        http_host: req.authority(),
        method: req.method(),
        remote: work.client.ip(),
        vars: &lookup as &dyn VarSource,
    };
    Ok(snap.router.search(&input, observer))
}

/// Notes the route that was found; gives it.
pub fn note(work: &mut Work, found: Match<'_, Arc<Route>>) -> Arc<Route> {
    let route = Arc::clone(&found.entry.value);
    work.matched_uri = Some(Arc::clone(found.uri));
    work.matched_host = found.host.cloned();
    work.params = found.params;
    work.route = Some(Arc::clone(&route.info));
    route
}

/// Whether plugins may run.
///
/// # Errors
/// When something is missing that a route cannot do without.
pub fn may_start(target: &Target) -> Result<(), FaultKind> {
    match target {
        Target::MissingService => Err(FaultKind::NoService),
        Target::MissingPluginConfig => Err(FaultKind::NoPluginConfig),
        _ => Ok(()),
    }
}

/// Where a request goes when no plugin has answered it.
///
/// # Errors
/// When it has nowhere to go.
pub fn upstream(target: &Target) -> Result<&Arc<Upstream>, FaultKind> {
    match target {
        Target::Upstream(upstream) => Ok(upstream),
        Target::MissingUpstream => Err(FaultKind::NoUpstream),
        _ => Err(FaultKind::NoTarget),
    }
}
