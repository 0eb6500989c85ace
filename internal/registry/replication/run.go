package replication

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// The reasons why a tag or a replication fails. Callers who may see the replication read them.
const (
	mayNotRead  = "whoever set up the replication may not read the images or change the group any more"
	notNow      = "the server could not do it, and tries again"
	refusedHere = "a rule refuses to pull the image: "
	tooLarge    = "the image has too many manifests or blobs to be copied at once"
	incomplete  = "the image is not complete here"
	pullsUsedUp = "the repo has no pulls left for today"
	badName     = "other registries do not accept the name of the repo: "
	notSigned   = "only signed images are copied: "
	theTarget   = "the target: "
)

const (
	pendingAtOnce = 64  // pending tags that one query returns
	dropsAtOnce   = 500 // tags of a deleted replication that one transaction removes
	reposAtOnce   = 500

	// failuresInRow is the number of tags that the target refuses one after the other until the attempt ends.
	failuresInRow = 5
)

// A targetError means that no tag can be copied to a target now.
type targetError struct {
	reason  string
	retryIn time.Duration // pause that the target demands; 0 if it demands none
}

// Error implements error.
func (e *targetError) Error() string { return e.reason }

// A tagError means that one tag cannot be copied now.
type tagError struct {
	reason string
	remote bool // whether the target has refused it
	skip   bool // whether the replication does not select the image
}

// Error implements error.
func (e *tagError) Error() string { return e.reason }

// An attempt copies pending tags of one replication.
type attempt struct {
	*Replicator
	registry.Replication
	run    sourcedb.ReplicationRun
	target upstream.Registry
	blobs  blobCopies

	listing sync.Mutex // held while a list of attached artifacts at the target is read and written

	mu       sync.Mutex
	failures int  // number of tags that the target has refused since it accepted one
	proven   bool // whether the target has taken an image in this attempt
}

// copyPending copies the pending tags of a replication that are due.
func (r *Replicator) copyPending(ctx context.Context, run sourcedb.ReplicationRun) error {
	if run.Gone {
		for {
			done, err := r.sources.DropReplicated(ctx, run, dropsAtOnce)
			if err != nil || done {
				return err
			}
		}
	}
	found, err := r.sources.Replication(ctx, run.UID)
	if err != nil {
		return err
	}
	a := &attempt{Replicator: r, Replication: found, run: run, target: r.registryOf(found)}
	as := authz.WithCaller(ctx, authz.Caller{Identity: found.SetBy})
	ctx = resource.WithActor(as, resource.Actor{Subject: found.SetBy})
	if err := a.allowed(ctx, found.Group()); err != nil {
		return err
	}
	if run.Scan {
		if err := a.scan(ctx); err != nil {
			return err
		}
	}
	for {
		tags, err := r.sources.PendingTags(ctx, run, pendingAtOnce)
		if err != nil || len(tags) == 0 {
			return err
		}
		if err := a.copyAll(ctx, tags); err != nil {
			return err
		}
	}
}

// registryOf returns the target of a replication for the client: its address and how to sign in.
func (r *Replicator) registryOf(to registry.Replication) upstream.Registry {
	target := upstream.Registry{
		Key: string(to.UID) + " " + to.UpdateTime.String(), Address: to.Address, Realm: to.Realm,
	}
	switch {
	case to.Identity != "":
		target.SignIn = func(ctx context.Context) (user, password string, err error) {
			password, err = r.Issuer.MintReplication(ctx, to.UID, to.Address)
			return to.Identity, password, err
		}
	case !to.Credentials.Empty():
		target.SignIn = func(context.Context) (user, password string, err error) {
			return mirror.OpenCredentials(r.Key, to.AsUpstream())
		}
	}
	return target
}

// allowed returns a targetError if the identity that set up the replication may no longer copy from a place.
func (a *attempt) allowed(ctx context.Context, place resource.UID) error {
	err := a.Authz.RequireAll(ctx, resource.NewCapabilities(Capabilities...), place)
	if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.Unauthenticated) {
		return &targetError{reason: mayNotRead}
	}
	return err
}

// pathBelow returns the path of a repo below the group of a replication. path is the path of the repo from its
// organization on.
func pathBelow(r registry.Replication, path string) string {
	names := strings.Split(path, "/")
	return strings.Join(names[min(r.Group().Depth(), len(names)):], "/")
}

// scan queues all selected tags, and all copied tags that do not exist any more.
func (a *attempt) scan(ctx context.Context) error {
	err := a.EachTag(ctx, a.Replication, func(tags []sourcedb.ScannedTag) (bool, error) {
		var queued []sourcedb.QueuedTag
		for _, g := range tags {
			queued = append(queued, sourcedb.QueuedTag{Repo: g.Repo, Name: g.Name})
		}
		return true, a.sources.QueueScanned(ctx, a.run, queued)
	})
	if err != nil {
		return err
	}
	for last := (sourcedb.QueuedTag{}); ; {
		gone, err := a.sources.CopiedWithoutTag(ctx, a.UID, last, namesAtOnce)
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			break
		}
		last = gone[len(gone)-1]
		if err := a.sources.QueueScanned(ctx, a.run, gone); err != nil {
			return err
		}
	}
	return a.sources.EndScan(ctx, a.run, a.Interval)
}

// EachTag calls visit with the tags that a replication selects, some at a time, until visit returns false.
func (r *Replicator) EachTag(
	ctx context.Context, of registry.Replication, visit func([]sourcedb.ScannedTag) (bool, error),
) error {
	for last := resource.UID(""); ; {
		repos, err := r.sources.ReposBelow(ctx, of.Group(), last, reposAtOnce)
		if err != nil || len(repos) == 0 {
			return err
		}
		for _, repo := range repos {
			last = repo
			path, err := r.Store.RepoPath(ctx, repo)
			if errors.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if !of.SelectsRepo(pathBelow(of, path)) {
				continue
			}
			if goOn, err := r.eachTagOf(ctx, of, repo, visit); err != nil || !goOn {
				return err
			}
		}
	}
}

func (r *Replicator) eachTagOf(
	ctx context.Context, of registry.Replication, repo resource.UID, visit func([]sourcedb.ScannedTag) (bool, error),
) (goOn bool, _ error) {
	for last := ""; ; {
		tags, err := r.sources.ScanTags(ctx, of.UID, repo, last, namesAtOnce)
		if err != nil || len(tags) == 0 {
			return true, err
		}
		last = tags[len(tags)-1].Name
		selected := tags[:0]
		for _, g := range tags {
			if of.SelectsTag(g.Name) {
				selected = append(selected, g)
			}
		}
		if goOn, err = visit(selected); err != nil || !goOn {
			return goOn, err
		}
	}
}

// copyAll copies tags, some at the same time. It returns an error if no more tags can be copied now. An attempt can
// always copy one tag at a time, whatever other targets do. For further ones it needs a slot of its organization. It
// asks for none until the target has taken an image, so that targets that do not answer leave the slots to others.
func (a *attempt) copyAll(ctx context.Context, tags []sourcedb.PendingTag) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for ; len(tags) > 0 && !a.isProven(); tags = tags[1:] {
		if err := a.copyOne(ctx, tags[0]); err != nil {
			return err
		}
	}
	next := make(chan sourcedb.PendingTag)
	waiting, taken := context.WithCancel(ctx) // ends when no tag is left to take
	defer taken()
	free := func() (func(), error) { return func() {}, nil }
	slot := func() (func(), error) { return a.slots.Acquire(waiting, a.Store.Tenant(ctx, a.UID)) }
	var workers sync.WaitGroup
	workers.Go(func() { a.copyNext(ctx, next, free, cancel) })
	for range copiesPerTarget - 1 {
		workers.Go(func() { a.copyNext(ctx, next, slot, cancel) })
	}
	for _, g := range tags {
		select {
		case next <- g:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	taken()
	workers.Wait()
	return context.Cause(ctx)
}

// copyNext copies tags until there are no more, with a slot for each. It calls fail if no more tags can be copied now.
func (a *attempt) copyNext(
	ctx context.Context, next <-chan sourcedb.PendingTag, slot func() (release func(), _ error), fail func(error),
) {
	for {
		release, err := slot()
		if err != nil {
			return
		}
		g, ok := <-next
		if ok {
			err = a.copyOne(ctx, g)
		}
		release()
		if err != nil {
			fail(err)
		}
		if !ok {
			return
		}
	}
}

// copyOne copies one tag and records the result. It returns an error if no more tags can be copied now.
func (a *attempt) copyOne(ctx context.Context, g sourcedb.PendingTag) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := a.copyTag(ctx, g)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	refused, ok := errors.AsType[*tagError](err)
	_, stops := errors.AsType[*targetError](err)
	switch {
	case err == nil:
		a.accepted()
		return nil
	case stops, errors.Is(err, fault.Aborted):
		return err
	case !ok:
		a.Log.WarnContext(ctx, "a tag was not replicated", "replication", a.UID, "repo", g.Repo, "err", err)
		refused = &tagError{reason: notNow}
	}
	if refused.skip {
		return a.sources.Skipped(ctx, a.run, g, refused.reason)
	}
	a.Metrics.ReplicatedTags.Add(1, metric.Failed)
	if err := a.sources.NotCopied(ctx, a.run, g, refused.reason); err != nil {
		return err
	}
	if refused.remote && a.refused() {
		return &targetError{reason: refused.reason}
	}
	return nil
}

func (a *attempt) accepted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = 0
}

// prove records that the target has taken an image.
func (a *attempt) prove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proven = true
}

func (a *attempt) isProven() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proven
}

// refused counts a tag that the target has refused, and reports whether the attempt should end.
func (a *attempt) refused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures++
	return a.failures >= failuresInRow
}

// remoteError converts the error of a request to the target. It returns a targetError if the target cannot be reached
// or demands a pause, and a tagError if it answers.
func remoteError(err error) error {
	failure, ok := errors.AsType[*upstream.Error](err)
	switch {
	case !ok:
		return err
	case failure.RetryIn > 0 || failure.Status == http.StatusUnauthorized || failure.Status == 0 && failure.Cause != nil:
		return &targetError{reason: theTarget + failure.Reason, retryIn: failure.RetryIn}
	}
	return &tagError{reason: theTarget + cmp.Or(failure.Reason, "it refuses the image"), remote: true}
}
