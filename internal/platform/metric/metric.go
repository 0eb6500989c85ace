// Package metric defines the Prometheus counters of the service.
//
// Labels have values from fixed sets. No label value is a name that a caller
// chooses, so that nobody can create thousands of series. Gauges, such as the
// length of a queue, are not here: package server reads them when Prometheus
// scrapes.
package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics contains all counters. The zero value counts nothing.
type Metrics struct {
	Exchanges  Counter // token exchanges by workloads; by class of issuer and outcome
	SignIns    Counter // credentials of people that were checked; by kind and outcome
	Denials    Counter // refused requests; by the capability that was missing
	Pulls      Counter // manifests that were pulled
	Pushes     Counter // manifests that were pushed
	Bytes      Counter // bytes that the registry sent and received; by direction
	Deliveries Counter // deliveries of events; by outcome
	Mails      Counter // messages to people; by outcome
	Feeds      Counter // reads of advisory feeds; by outcome
	Imports    Counter // advisories; by result
	Collected  Counter // objects that the garbage collector of blobs removed; by kind
	CollectRun Counter // runs of the garbage collector; by outcome
	Scrubbed   Counter // blobs that seemed to be corrupt, or were; by verdict
	caches     Counter // cache lookups; by cache and result

	Inspections    Counter // inspected images; by outcome
	RuleRefused    Counter // pulls that a rule has refused
	ReplicatedTags Counter // tags handled by replications; by outcome
	Upstreams      Counter // requests for content from an upstream registry; by kind and outcome

	Follows      Counter // runs that made a repo equal to its source; by outcome
	FollowedTags Counter // tags in these runs; by what was done with them
}

// These are the values of labels.
var (
	// IssuerClasses are the classes of issuers that sign the tokens of workloads.
	// Other is for issuers that belong to no known service, such as a self-hosted
	// GitLab.
	IssuerClasses = []string{Own, "github", "gitlab", "google", "azure", "buildkite", AWS, Other}

	outcomes     = []string{OK, Denied, Invalid, Unavailable, Failed}
	signIns      = []string{"password", "totp", "recovery", "passkey", "provider"}
	directions   = []string{Sent, Received}
	deliveries   = []string{OK, Failed, GivenUp}
	mails        = []string{OK, Failed, GivenUp, Denied}
	feedOutcomes = []string{Changed, Unchanged, Failed}
	imports      = []string{"created", "updated", Unchanged, "older", Failed}
	collected    = []string{"uploads", "links", "blobs", "files", "pulls", "moves", "trash", "bytes"}
	verdicts     = []string{"sound", "rotten", "repaired"}
	caches       = []string{"tokens", "identities", "issuer_keys", "repos", "advisories", "verdicts", "signatures"}
)

// These values of labels are used by other packages.
const (
	OK          = "ok"
	Denied      = "denied"
	Invalid     = "invalid"
	Unavailable = "unavailable"
	Failed      = "failed"
	Sent        = "sent"
	Received    = "received"
	GivenUp     = "given_up"
	Changed     = "changed"
	Unchanged   = "unchanged"
	Own         = "own"
	AWS         = "aws"
	Other       = "other"

	NotUnderstood = "not_understood"

	Hit        = "hit"
	Fetched    = "fetched"
	Stale      = "stale"
	Limited    = "limited"
	Missing    = "missing"
	Remembered = "remembered"
	Abandoned  = "abandoned"
	Manifest   = "manifest"
	Blob       = "blob"

	Copied  = "copied"
	Removed = "removed"
)

// New registers the counters with r. capabilities are the values of the label
// that Denials has.
func New(r prometheus.Registerer, capabilities []string) Metrics {
	kinds := []string{OK, Denied, Failed}
	return Metrics{
		Exchanges: newCounter(r, "holdfast_exchanges_total",
			"Exchanges of workloads' tokens, by the class of the issuer that the token names, and outcome.",
			label{"issuer", IssuerClasses}, label{"outcome", outcomes}),
		SignIns: newCounter(r, "holdfast_signins_total",
			"Credentials of people that were checked, by kind and outcome.", label{"kind", signIns}, label{"outcome", kinds}),
		Denials: newCounter(r, "holdfast_denials_total",
			"Requests refused because a capability was missing, by that capability.",
			label{"capability", append(slices.Clone(capabilities), Other)}),
		Pulls:  newCounter(r, "holdfast_registry_pulls_total", "Manifests that were pulled."),
		Pushes: newCounter(r, "holdfast_registry_pushes_total", "Manifests that were pushed."),
		Bytes: newCounter(r, "holdfast_registry_bytes_total",
			"Bytes of bodies that the registry sent and received. Those of redirected pulls are the storage's.",
			label{"direction", directions}),
		Deliveries: newCounter(r, "holdfast_deliveries_total",
			"Attempts to deliver events, by outcome, and events that were given up.", label{"outcome", deliveries}),
		Mails: newCounter(r, "holdfast_mails_total",
			"Attempts to send messages to people, by outcome, messages that were given up, and those beyond a bound (denied).",
			label{"outcome", mails}),
		Feeds: newCounter(r, "holdfast_feed_reads_total", "Feeds of advisories that were read, by outcome.",
			label{"outcome", feedOutcomes}),
		Imports: newCounter(r, "holdfast_advisories_imported_total", "Advisories of imports and feeds, by result.",
			label{"result", imports}),
		Collected: newCounter(r, "holdfast_gc_removed_total", "What the garbage collector of blobs removed, by kind.",
			label{"kind", collected}),
		CollectRun: newCounter(r, "holdfast_gc_runs_total", "Runs of the garbage collector of blobs, by outcome.",
			label{"outcome", []string{OK, Failed}}),
		Scrubbed: newCounter(r, "holdfast_scrub_verdicts_total",
			"Blobs that seemed to be missing or wrong in the storage, or were, and were read once more; by what they are.",
			label{"verdict", verdicts}),
		Inspections: newCounter(r, "holdfast_inspections_total", "Images that were inspected, by outcome.",
			label{"outcome", []string{OK, NotUnderstood, Failed}}),
		Follows: newCounter(r, "holdfast_follow_runs_total",
			"Runs that compared a repo with the one that it follows, by outcome.",
			label{"outcome", []string{OK, Failed}}),
		FollowedTags: newCounter(r, "holdfast_follow_tags_total",
			"Tags of repos that follow others, which were copied from there, or removed because they are not there.",
			label{"change", []string{Copied, Removed}}),
		ReplicatedTags: newCounter(r, "holdfast_replication_tags_total",
			"Tags that replications have copied to other registries, removed there, compared without a difference "+
				"(unchanged), or failed to copy.",
			label{"outcome", []string{Copied, Removed, Unchanged, Failed}}),
		RuleRefused: newCounter(r, "holdfast_rule_refusals_total", "Pulls of images that a rule has refused."),
		Upstreams: newCounter(r, "holdfast_upstream_requests_total",
			"Requests for manifests and blobs of groups with an upstream: served from here because that was fresh (hit) "+
				"or the upstream said that it is (unchanged), fetched, "+
				"served from here though the upstream was not asked or gave no answer "+
				"(stale); and not served because the upstream does not have it (missing), did not have it "+
				"a moment ago and was not asked again (remembered), was asked too often (limited), refused (denied) or failed, "+
				"or because no client waited for it any more (abandoned).",
			label{"kind", []string{Manifest, Blob}},
			label{"outcome", []string{Hit, Unchanged, Fetched, Stale, Missing, Remembered, Limited, Denied, Failed,
				Abandoned}}),
		caches: newCounter(r, "holdfast_cache_requests_total", "Lookups in caches, by cache and result.",
			label{"cache", caches}, label{"result", []string{"hit", "miss"}}),
	}
}

// A label is the name of a counter's label, with its possible values.
type label struct {
	name   string
	values []string
}

// A Counter counts events by the values of its labels. The zero value counts
// nothing.
type Counter struct {
	labels []label
	series map[values]prometheus.Counter
}

// values are the label values of a series. There are at most two.
type values [2]string

// newCounter registers a counter. All of its series exist from the start, because a
// rate needs a first value.
func newCounter(r prometheus.Registerer, name, help string, labels ...label) Counter {
	var names []string
	for _, l := range labels {
		names = append(names, l.name)
	}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, names)
	r.MustRegister(vec)
	c := Counter{labels, map[values]prometheus.Counter{}}
	c.fill(vec, nil)
	return c
}

// fill creates all series whose label values begin with the given values.
func (c Counter) fill(vec *prometheus.CounterVec, given []string) {
	if len(given) == len(c.labels) {
		var v values
		copy(v[:], given)
		c.series[v] = vec.WithLabelValues(given...)
		return
	}
	for _, v := range c.labels[len(given)].values {
		c.fill(vec, append(slices.Clone(given), v))
	}
}

// Add adds n to the series with these label values. A value that the label does
// not have counts as Other, or as Failed if the label has no Other.
func (c Counter) Add(n int64, given ...string) {
	if c.series == nil || n == 0 {
		return
	}
	var v values
	copy(v[:], given)
	counter, ok := c.series[v]
	if !ok {
		for i := range c.labels {
			v[i] = c.labels[i].known(v[i])
		}
		counter = c.series[v]
	}
	counter.Add(float64(n))
}

func (l label) known(value string) string {
	switch {
	case slices.Contains(l.values, value):
		return value
	case slices.Contains(l.values, Other):
		return Other
	}
	return Failed
}

// A Cache counts the lookups in a cache. The zero value counts nothing.
type Cache struct{ hit, miss prometheus.Counter }

// Cache returns the counter for the lookups in the cache name.
func (m Metrics) Cache(name string) Cache {
	return Cache{m.caches.series[values{name, "hit"}], m.caches.series[values{name, "miss"}]}
}

// Count counts a lookup, which found the value if hit is true.
func (c Cache) Count(hit bool) {
	switch {
	case c.hit == nil:
	case hit:
		c.hit.Inc()
	default:
		c.miss.Inc()
	}
}
