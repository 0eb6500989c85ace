package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

const (
	askForMetrics = time.Second      // timeout of database queries during a scrape
	keepAnswers   = 10 * time.Second // time for which the results of these queries are cached
)

// openMetrics creates the counters, and registers the collector states.
func (s *Server) openMetrics() {
	s.metrics = prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	s.states, s.started = &states{server: s}, s.cfg.Now()
	s.metrics.MustRegister(collectors.NewGoCollector(), process, s.states)
	var all resource.Capabilities
	for _, role := range authz.ManagedRoles() {
		all = all.Union(role.Capabilities)
	}
	var names []string
	for _, c := range all.All() {
		names = append(names, c.String())
	}
	s.counts = metric.New(s.metrics, names)
}

// states collects metrics whose values are read during a scrape. Most values are in
// memory. The age of feeds, the queues of images and messages, and the damaged blobs
// need database queries, which indexes serve. Their results are cached for
// keepAnswers, so that frequent scrapes do not load the database.
type states struct {
	server *Server

	mu      sync.Mutex
	asked   time.Time
	overdue time.Duration
	images  int64 // images that wait for inspection
	rotten  int64 // blobs that are missing or damaged
	copies  sourcedb.ReplicationTotals
	feeds   int // feeds whose last read failed
	sinks   int // subscriptions whose sinks do not accept events

	oldestImage time.Time // time at which the oldest image that waits for its first inspection was pushed
	known       bool

	mail mailStates
}

// A state is a metric of states.
type state struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func newState(kind prometheus.ValueType, name, help string, labels ...string) state {
	return state{prometheus.NewDesc(name, help, labels, nil), kind}
}

var (
	poolInUse = newState(prometheus.GaugeValue, "holdfast_database_connections_in_use",
		"Connections to the database that are in use.")
	poolLimit = newState(prometheus.GaugeValue, "holdfast_database_connections_limit",
		"Connections to the database that may be open.")
	poolWaits = newState(prometheus.CounterValue, "holdfast_database_waits_total",
		"Number of times that a query waited for a connection to the database.")
	poolWaited = newState(prometheus.CounterValue, "holdfast_database_wait_seconds_total",
		"Total time that queries have waited for a connection to the database.")
	replicaLag = newState(prometheus.GaugeValue, "holdfast_replica_lag_revisions",
		"Changes that this replica had not applied when it last heard from the database. PostgreSQL only.")
	replicaHeard = newState(prometheus.GaugeValue, "holdfast_replica_heard_seconds",
		"Time since this replica last heard from the database. PostgreSQL only.")
	deliveriesWaiting = newState(prometheus.GaugeValue, "holdfast_deliveries_waiting",
		"Events in the queues of webhooks, at most 512 in each. Only on the replica that delivers.")
	deliveryOldest = newState(prometheus.GaugeValue, "holdfast_delivery_oldest_seconds",
		"Age of the oldest event in the queues of webhooks. Only on the replica that delivers.")
	mailsWaiting = newState(prometheus.GaugeValue, "holdfast_mails_waiting",
		"Messages to people that wait to be sent. Absent without a mail server.")
	mailOldest = newState(prometheus.GaugeValue, "holdfast_mail_oldest_seconds",
		"Age of the oldest message that waits to be sent.")
	feedOverdue = newState(prometheus.GaugeValue, "holdfast_feed_overdue_seconds",
		"Time since the most overdue advisory feed was due.")
	inspectionsWaiting = newState(prometheus.GaugeValue, "holdfast_inspections_waiting",
		"Images that wait for inspection, at most 10,000.")
	inspectionOldest = newState(prometheus.GaugeValue, "holdfast_inspection_oldest_seconds",
		"Time since the push of the oldest image that waits for its first inspection.")
	blobsRotten = newState(prometheus.GaugeValue, "holdfast_blobs_rotten",
		"Blobs that are missing or damaged in the storage and are not served. The same on all replicas.")
	replicationsPending = newState(prometheus.GaugeValue, "holdfast_replications_pending",
		"Tags that wait for a copy to another registry, at most 10,000.")
	replicationOldest = newState(prometheus.GaugeValue, "holdfast_replication_oldest_seconds",
		"Time since the oldest tag that waits for a copy to another registry was queued.")
	replicationsFailing = newState(prometheus.GaugeValue, "holdfast_replications_failing",
		"Replications to other registries whose last attempt failed for all tags.")
	keyCreated = newState(prometheus.GaugeValue, "holdfast_signing_key_created_timestamp_seconds",
		"Creation time of the key that signs tokens.")
	keyRotation = newState(prometheus.GaugeValue, "holdfast_signing_key_rotation_seconds",
		"Age at which the signing key is replaced.")
	certExpiry = newState(prometheus.GaugeValue, "holdfast_tls_certificate_expiry_timestamp_seconds",
		"Expiry time of the certificate of the server. Absent without TLS.")

	allStates = []state{
		poolInUse, poolLimit, poolWaits, poolWaited, replicaLag, replicaHeard, deliveriesWaiting, deliveryOldest,
		mailsWaiting, mailOldest, feedOverdue, inspectionsWaiting, inspectionOldest, blobsRotten,
		replicationsPending, replicationOldest, replicationsFailing, keyCreated, keyRotation, certExpiry,
	}
)

// Describe implements prometheus.Collector.
func (v *states) Describe(to chan<- *prometheus.Desc) {
	for _, s := range allStates {
		to <- s.Desc
	}
}

// Collect implements prometheus.Collector.
func (v *states) Collect(to chan<- prometheus.Metric) {
	send := func(s state, value float64) { to <- prometheus.MustNewConstMetric(s.Desc, s.kind, value) }
	pool := v.server.store.PoolStats()
	send(poolInUse, float64(pool.InUse))
	send(poolLimit, float64(pool.MaxOpenConnections))
	send(poolWaits, float64(pool.WaitCount))
	send(poolWaited, pool.WaitDuration.Seconds())
	if behind, age, ok := v.server.store.Lag(); ok {
		send(replicaLag, float64(behind))
		send(replicaHeard, age.Seconds())
	}
	backlog := v.server.events.Backlog()
	send(deliveriesWaiting, float64(backlog.Waiting))
	age := time.Duration(0)
	if !backlog.Oldest.IsZero() {
		age = max(0, v.server.cfg.Now().Sub(backlog.Oldest))
	}
	send(deliveryOldest, age.Seconds())
	if waiting, oldest, ok := v.mail.read(v.server); ok {
		send(mailsWaiting, float64(waiting))
		age := time.Duration(0)
		if !oldest.IsZero() {
			age = max(0, v.server.cfg.Now().Sub(oldest))
		}
		send(mailOldest, age.Seconds())
	}
	if overdue, images, ok := v.queues(); ok {
		send(feedOverdue, overdue.Seconds())
		send(inspectionsWaiting, float64(images))
		send(inspectionOldest, v.inspectionAge().Seconds())
		send(blobsRotten, float64(v.rottenBlobs()))
		copies, age := v.replications()
		send(replicationsPending, float64(copies.Pending))
		send(replicationOldest, age.Seconds())
		send(replicationsFailing, float64(copies.Failing))
	}
	send(keyCreated, float64(v.server.issuer.SigningSince().Unix()))
	send(keyRotation, v.server.cfg.KeyRotation.Seconds())
	if v.server.certificate != nil {
		send(certExpiry, float64(v.server.certificate.Expiry().Unix()))
	}
}

// queues returns the delay of the most overdue feed and the number of images that wait,
// and whether both are known.
func (v *states) queues() (overdue time.Duration, images int64, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.asked) < keepAnswers {
		return v.overdue, v.images, v.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), askForMetrics)
	defer cancel()
	var feeds, queue, first, blobs, copies, failedFeeds, failedSinks error
	v.overdue, feeds = v.server.advisory.OverdueBy(ctx)
	v.images, queue = v.server.indexer.Waiting(ctx)
	v.oldestImage, first = v.server.indexer.Oldest(ctx)
	v.rotten, blobs = registrydb.New(v.server.store).RottenBlobs(ctx)
	v.copies, copies = sourcedb.New(registrydb.New(v.server.store)).ReplicationTotals(ctx)
	v.feeds, failedFeeds = v.server.advisory.FailingFeeds(ctx)
	v.sinks, failedSinks = eventdb.New(v.server.store).FailingSubscriptions(ctx)
	v.asked = time.Now()
	v.known = errors.Join(feeds, queue, first, blobs, copies, failedFeeds, failedSinks) == nil
	return v.overdue, v.images, v.known
}

// inspectionAge returns the time since the push of the oldest image that waits for its first inspection.
func (v *states) inspectionAge() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.oldestImage.IsZero() {
		return 0
	}
	return max(0, v.server.cfg.Now().Sub(v.oldestImage))
}

// failures returns the time of the oldest push that waits for its first inspection, and the numbers of failing feeds
// and subscriptions, as queues has read them.
func (v *states) failures() (oldestImage time.Time, feeds, sinks int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.oldestImage, v.feeds, v.sinks
}

// replications returns the numbers about replications that queues has read, and the age of the oldest pending tag.
func (v *states) replications() (totals sourcedb.ReplicationTotals, age time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.copies.Oldest.IsZero() {
		age = max(0, v.server.cfg.Now().Sub(v.copies.Oldest))
	}
	return v.copies, age
}

// rottenBlobs returns the number of damaged blobs that queues has read.
func (v *states) rottenBlobs() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.rotten
}

// mailStates are the metrics of the queue of messages. They need a database query,
// whose result is cached for keepAnswers.
type mailStates struct {
	mu      sync.Mutex
	asked   time.Time
	waiting int
	oldest  time.Time
	known   bool
}

func (v *mailStates) read(s *Server) (waiting int, oldest time.Time, known bool) {
	if s.mail == nil {
		return 0, time.Time{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.asked) >= keepAnswers {
		ctx, cancel := context.WithTimeout(context.Background(), askForMetrics)
		defer cancel()
		var err error
		v.waiting, v.oldest, err = s.mail.Waiting(ctx)
		v.asked, v.known = time.Now(), err == nil
	}
	return v.waiting, v.oldest, v.known
}
