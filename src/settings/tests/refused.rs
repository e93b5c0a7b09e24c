//! Values and keys that are refused.

use std::path::Path;

use super::{bad, parse, warned};

#[test]
fn wrong_values_are_all_reported() {
    bad(
        "apisix:\n  node_listen: [0, x]\n  enable_http2: 'yes please'\n  router: {http: tree}\n",
        &[
            "5:12: apisix.router.http: expected one of radixtree_host_uri, radixtree_uri, radixtree_uri_with_parameter, found \"tree\"",
            "3:17: apisix.node_listen[0]: expected a port from 1 to 65535, found 0",
            "3:20: apisix.node_listen[1]: expected a port or {ip, port}, found \"x\"",
            "4:3: apisix.enable_http2: expected true or false, found \"yes please\"",
        ],
    );
    bad(
        "nginx_config: {http: {send_timeout: soon}}\n",
        &[
            "2:23: nginx_config.http.send_timeout: expected a duration such as 60s, 1m, 500ms, or a number of seconds, found \"soon\"",
        ],
    );
    bad(
        "nginx_config: {http: {client_max_body_size: big}}\n",
        &[
            "2:23: nginx_config.http.client_max_body_size: expected a size such as 0, 512k, 10m, or a number of bytes, found \"big\"",
        ],
    );
    bad(
        "apisix: {trusted_addresses: [10.0.0.0/8, here]}\n",
        &["2:42: apisix.trusted_addresses[1]: expected an address or network, found \"here\""],
    );
    bad(
        "nginx_config: {worker_processes: 0}\n",
        &["2:16: nginx_config.worker_processes: expected a whole number from 1 to 1024, found 0"],
    );
    bad(
        "apisix: {router: 5}\n",
        &["2:10: apisix.router: expected a mapping, found 5"],
    );
    bad(
        "apisix: {node_listen: '${{NONE}}'}\n",
        &[
            "2:10: apisix.node_listen: can't find environment variable NONE (set it, or give a default: ${{NONE:=value}})",
        ],
    );
    bad(
        "apisix: {status: 5}\n",
        &["2:10: apisix.status: expected a mapping, found 5"],
    );
    bad(
        "apisix: {status: true}\n",
        &["2:10: apisix.status: expected a mapping, found true"],
    );
    bad(
        "apisix: {ssl: {ssl_protocols: TLSv1.2 SSLv3}}\n",
        &[
            "2:16: apisix.ssl.ssl_protocols: expected some of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3, found \"TLSv1.2 SSLv3\"",
        ],
    );
    bad(
        "apisix: {ssl: {listen: 443}}\n",
        &["2:16: apisix.ssl.listen: expected a list, found 443"],
    );
    bad(
        "plugins: {echo: true}\n",
        &["2:1: plugins: expected a list of plugin names, found {\"echo\":true}"],
    );
    bad(
        "plugins: [echo, 5]\n",
        &["2:17: plugins[1]: expected a plugin name, found 5"],
    );
    bad(
        "nginx_config: {error_log: 'syslog:server=127.0.0.1'}\n",
        &[
            "2:16: nginx_config.error_log: expected a file (syslog is not written to by this version), found \"syslog:server=127.0.0.1\"",
        ],
    );
    bad(
        "plugin_attr: {redirect: {https_port: 0}}\n",
        &["2:26: plugin_attr.redirect.https_port: expected a port from 1 to 65535, found 0"],
    );
    bad(
        "nginx_config: {error_log_level: loud}\n",
        &[
            "2:16: nginx_config.error_log_level: expected one of warn, debug, info, notice, error, crit, alert, emerg, found \"loud\"",
        ],
    );
    bad(
        "nginx_config: {http: {real_ip_header: 'a b'}}\n",
        &["2:23: nginx_config.http.real_ip_header: expected a header name, found \"a b\""],
    );
    bad(
        "plugin_attr: {prometheus: {metric_prefix: 1st_, export_uri: metrics, default_buckets: [2, 1]}}\n",
        &[
            "2:49: plugin_attr.prometheus.export_uri: expected a path that begins with `/`, found \"metrics\"",
            "2:28: plugin_attr.prometheus.metric_prefix: allowed are letters, digits, `_` and `:`, no digit first",
            "2:70: plugin_attr.prometheus.default_buckets: must rise, but 1 follows 2",
        ],
    );
    bad(
        "plugin_attr: {prometheus: {metrics: {http_status: {expire: soon}}}}\n",
        &[
            "2:52: plugin_attr.prometheus.metrics.http_status.expire: wrong type: expected integer, got string",
        ],
    );
    bad(
        "lockgate: {engine: fast, max_connections: 0}\n",
        &[
            "2:26: lockgate.max_connections: expected a whole number from 1 to 10000000, found 0",
            "2:12: lockgate.engine: expected one of auto, general, found \"fast\"",
        ],
    );
}

#[test]
fn listeners_take_known_members_only() {
    bad(
        "apisix: {node_listen: [{prot: 80}]}\n",
        &["2:25: apisix.node_listen[0].prot: unknown key `prot` (did you mean `port`?)"],
    );
    bad(
        "apisix: {node_listen: [{port: 0}]}\n",
        &["2:25: apisix.node_listen[0].port: expected a port from 1 to 65535, found 0"],
    );
    bad(
        "apisix: {node_listen: [{ip: here}]}\n",
        &["2:25: apisix.node_listen[0].ip: expected an address, found \"here\""],
    );
    bad(
        "apisix: {node_listen: [{port: 80, enable_http2: true}]}\n",
        &[
            "2:35: apisix.node_listen[0].enable_http2: is no setting of one listener; use apisix.enable_http2",
        ],
    );
    bad(
        "apisix: {ssl: {listen: [{port: 443, enable_http3: maybe}]}}\n",
        &["2:37: apisix.ssl.listen[0].enable_http3: expected true or false, found \"maybe\""],
    );
    warned(
        "apisix: {ssl: {listen: [{port: 443, enable_http3: true}]}}",
        &[
            "apisix.ssl.listen[0].enable_http3: has no effect: HTTP/3 is not served by this version, clients use HTTP/2",
        ],
    );
    warned(
        "apisix: {ssl: {listen: [{port: 443, enable_http3: false}]}}",
        &[],
    );
}

#[test]
fn types_are_checked_of_keys_without_effect() {
    bad(
        "apisix: {enable_reuseport: maybe}\n",
        &["2:10: apisix.enable_reuseport: expected true or false, found \"maybe\""],
    );
    bad(
        "apisix: {data_encryption: on}\n",
        &["2:10: apisix.data_encryption: expected a mapping, found true"],
    );
    bad(
        "apisix: {proxy_cache: {cache_ttl: soon, zones: {}}}\n",
        &[
            "2:24: apisix.proxy_cache.cache_ttl: expected a duration such as 60s, 1m, 500ms, or a number of seconds, found \"soon\"",
            "2:41: apisix.proxy_cache.zones: expected a list, found {}",
        ],
    );
    bad(
        "apisix: {control: {prt: 1, port: 0}}\n",
        &[
            "2:20: apisix.control.prt: unknown key `prt` (did you mean `apisix.control.port`?)",
            "2:28: apisix.control.port: expected a whole number from 1 to 65535, found 0",
        ],
    );
    bad(
        "graphql: {max_size: big}\n",
        &[
            "2:11: graphql.max_size: expected a size such as 0, 512k, 10m, or a number of bytes, found \"big\"",
        ],
    );
    bad(
        "stream_plugins: [1]\n",
        &["2:1: stream_plugins: expected a list of texts, found [1]"],
    );
    bad(
        "plugin_attr: {zipkin: 5}\n",
        &["2:15: plugin_attr.zipkin: expected a mapping, found a number"],
    );
    bad(
        "nginx_config: {http: {underscores_in_headers: maybe}}\n",
        &["2:23: nginx_config.http.underscores_in_headers: expected on or off, found \"maybe\""],
    );
    // What is null might as well not be there.
    bad(
        "apisix: {enable_reuseport: ~, control: ~, proxy_cache: []}\nnginx_config:\nplugin_attr:\n",
        &[],
    );
}

#[test]
fn unknown_keys_come_with_place_and_suggestion() {
    bad(
        "apisix:\n  node_lisen: 80\n",
        &["3:3: apisix.node_lisen: unknown key `node_lisen` (did you mean `apisix.node_listen`?)"],
    );
    bad(
        "apisx: {}\n",
        &["2:1: apisx: unknown key `apisx` (did you mean `apisix`?)"],
    );
    bad(
        "node_listen: 80\n",
        &["2:1: node_listen: unknown key `node_listen` (it belongs at `apisix.node_listen`)"],
    );
    bad(
        "nginx_config:\n  http:\n    zzz: 1\n",
        &["4:5: nginx_config.http.zzz: unknown key `zzz`"],
    );
}

#[test]
fn secrets_are_not_shown() {
    let check = |text: &str, expected: &str| bad(text, &[expected]);
    for (admin, problem) in [
        (
            "{admin_key: edd1}",
            "deployment.admin.admin_key: expected a list, found a text",
        ),
        ("edd1", "deployment.admin: expected a mapping, found a text"),
    ] {
        let role = "role: data_plane, role_data_plane: {config_provider: yaml}";
        let text = format!("deployment: {{{role}, admin: {admin}}}\n");
        let path = Path::new("config.yaml");
        let problems = parse(text.as_bytes(), path, &|_| None, &["echo"]).err();
        let got = problems.unwrap_or_default().to_string();
        assert!(got.ends_with(problem), "{got}");
    }
    check(
        "etcd: [edd1]\n",
        "2:1: etcd: expected a mapping, found a list",
    );
    check(
        "discovery: {nacos: edd1}\n",
        "2:13: discovery.nacos: expected a mapping, found a text",
    );
    check(
        "plugin_attr: {opentelemetry: edd1}\n",
        "2:15: plugin_attr.opentelemetry: expected a mapping, found a text",
    );
    for (path, value, problem) in [
        (
            "apisix: {node_listen: X}",
            "",
            "2:10: apisix.node_listen: expected a port or {ip, port}",
        ),
        (
            "apisix: {node_listen: [X]}",
            "",
            "2:24: apisix.node_listen[0]: expected a port or {ip, port}",
        ),
        (
            "apisix: {enable_http2: X}",
            "",
            "2:10: apisix.enable_http2: expected true or false",
        ),
        (
            "apisix: {status: {ip: X}}",
            "",
            "2:19: apisix.status.ip: expected an address",
        ),
        (
            "apisix: {ssl: {ssl_protocols: X}}",
            "",
            "2:16: apisix.ssl.ssl_protocols: expected some of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3",
        ),
        (
            "apisix: {extra_lua_path: [X]}",
            "a list",
            "2:10: apisix.extra_lua_path: expected a text",
        ),
        (
            "graphql: {max_size: X}",
            "",
            "2:11: graphql.max_size: expected a size such as 0, 512k, 10m, or a number of bytes",
        ),
        (
            "nginx_config: {http: {real_ip_header: X}}",
            "",
            "2:23: nginx_config.http.real_ip_header: expected a header name",
        ),
        (
            "nginx_config: {http: X}",
            "",
            "2:16: nginx_config.http: expected a mapping",
        ),
    ] {
        let found = if value.is_empty() { "a text" } else { value };
        let text = format!("{}\n", path.replace('X', "'${{SECRET}}'"));
        check(&text, &format!("{problem}, found {found}"));
    }
}

#[test]
fn keys_of_the_time_before_3_0_are_told_their_place() {
    let text = "since 3.0 the place is deployment.admin";
    for (old, new) in [
        (
            "admin_key: [{name: admin, key: edd1, role: admin}]",
            "admin_key",
        ),
        ("admin_key: edd1", "admin_key"),
        ("allow_admin: [127.0.0.0/24]", "allow_admin"),
        ("port_admin: 9180", "admin_listen"),
        ("admin_listen: {port: 9180}", "admin_listen"),
        ("https_admin: true", "https_admin"),
        ("admin_api_mtls: {admin_ssl_cert: ''}", "admin_api_mtls"),
        ("admin_api_version: v3", "admin_api_version"),
    ] {
        let name = old.split(':').next().unwrap_or_default();
        let warning = format!("apisix.{name}: has no effect: {text}.{new}");
        warned(&format!("apisix: {{{old}}}\n"), &[&warning]);
    }
    bad(
        "lockgate: {allow_admin: []}\n",
        &[
            "2:12: lockgate.allow_admin: unknown key `allow_admin` (it belongs at `deployment.admin.allow_admin`)",
        ],
    );
}

#[test]
fn a_cluster_needs_a_place_and_a_proof() {
    bad(
        "lockgate: {cluster: {owner: true, listen: 7946, timeout: 0}}\n",
        &[
            "2:35: lockgate.cluster.listen: expected address:port, such as 0.0.0.0:7946, found 7946",
            "2:12: lockgate.cluster: the gateways have to prove to each other who they are: set `tls` with ca, cert and key, or a `secret`",
            "2:49: lockgate.cluster.timeout: must be more than 0 and at most 60s",
            "2:12: lockgate.cluster: without etcd the gateways do not find each other: name all of them in `peers`",
        ],
    );
    bad(
        "lockgate: {cluster: {owner: true, listen: '0.0.0.0:7946', peers: [a:1, 'A:1', b, '1.2.3:5', 'c:0'], secret: short, tls: {cert: a}}}\n",
        &[
            "2:12: lockgate.cluster: the others need one address to reach this gateway at: `listen` is every address (advertise: 192.0.2.1:7946)",
            "2:72: lockgate.cluster.peers[1]: `a:1` is listed twice",
            "2:79: lockgate.cluster.peers[2]: expected host:port, such as 192.0.2.1:7946, gateway-1.internal:7946 or [2001:db8::1]:7946, found \"b\"",
            "2:82: lockgate.cluster.peers[3]: expected host:port, such as 192.0.2.1:7946, gateway-1.internal:7946 or [2001:db8::1]:7946, found \"1.2.3:5\"",
            "2:93: lockgate.cluster.peers[4]: expected host:port, such as 192.0.2.1:7946, gateway-1.internal:7946 or [2001:db8::1]:7946, found \"c:0\"",
            "2:101: lockgate.cluster.secret: has no place beside `tls`: certificates say who is who",
        ],
    );
    bad(
        "lockgate: {cluster: {listen: '127.0.0.1:9080', secret: short, tls: {}, own: 1}}\n",
        &[
            "2:72: lockgate.cluster.own: unknown key `own` (did you mean `lockgate.cluster.owner`?)",
            "2:48: lockgate.cluster.secret: must have at least 16 bytes: it could be guessed (openssl rand -hex 32)",
        ],
    );
    bad(
        "lockgate: {cluster: {owner: true, listen: '127.0.0.1:9080', peers: ['127.0.0.1:9080'], tls: {ca: a, cert: b}}}\n",
        &["2:88: lockgate.cluster.tls: ca, cert and key belong together"],
    );
    bad(
        "lockgate: {cluster: {owner: true, listen: '127.0.0.1:9088', peers: [], secret: '0123456789abcdef'}}\n",
        &["2:61: lockgate.cluster.peers: there is no gateway in the list"],
    );
    bad(
        "lockgate: {cluster: {owner: true, listen: '127.0.0.1:9080', peers: [b:1], secret: '0123456789abcdef'}}\n",
        &["2:35: lockgate.cluster.listen: cluster port 9080 conflicts with http listen"],
    );
}
