package reposync

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

const (
	tagsPerTurn = 100 // tags that one transaction changes

	duePerQuery  = 1000 // due repos that one query returns
	duePerOrg    = 20   // due repos of each organization that one query returns
	dueQueryTime = 250 * time.Millisecond
)

// The reasons why a repo or a tag differs from its source. Callers who may see the repo read them, so they must not
// reveal anything about the source.
const (
	sourceGone     = "the source is gone"
	mayNotPull     = "whoever set the source may not pull from it any more"
	mayNotPush     = "whoever set the source may not push to this repo any more"
	budgetFull     = "a budget of this organization is full: "
	pullsUsedUp    = "the source has no pulls left for today"
	notNow         = "the server could not do it, and tries again"
	tagImmutable   = "the tag is immutable here"
	tagRefused     = "a rule refuses to pull the image from the source"
	tagTooLarge    = "the image has too many manifests or blobs to be copied at once"
	tagIncomplete  = "the source does not have all of the image"
	tagsNotCopied  = "%d tags are not as in the source: %s"
	oneTagNotThere = "a tag is not as in the source: %s"
)

// RunDue syncs all repos that are due and returns the number of tags that it has copied and removed. Each
// organization syncs one repo at a time: it changes up to tagsPerTurn tags and then waits until every other
// organization has had its turn. Several replicas may call RunDue at the same time. A failure is recorded in the
// status of its repo and does not stop the other repos.
func (s *Syncer) RunDue(ctx context.Context) (copied, removed int, _ error) {
	q := queue{Syncer: s, holder: rand.Text(), running: map[resource.Tenant]*run{}}
	defer func() {
		for _, r := range q.running { // ends the lease, so that another replica can continue the sync
			_ = s.sources.EndFollow(context.WithoutCancel(ctx), r.FollowRun, sourcedb.FollowEnd{Soon: true})
		}
	}()
	for {
		if err := q.fill(ctx); err != nil || len(q.running) == 0 {
			return copied, removed, err
		}
		for tenant, r := range q.running {
			ended, err := r.turn(ctx)
			if err != nil {
				return copied, removed, err
			}
			if ended {
				copied, removed = copied+r.copied, removed+r.removed
				delete(q.running, tenant)
			}
		}
	}
}

// A queue holds the repos that are due and the runs in progress.
type queue struct {
	*Syncer
	holder  string
	queried time.Time                          // time of the last query for due repos
	due     map[resource.Tenant][]resource.UID // due repos
	running map[resource.Tenant]*run           // running syncs
}

// fill starts a run for each tenant that has a due repo and no run. It does not query the database before each
// turn, because a tenant may have very many due repos.
func (q *queue) fill(ctx context.Context) error {
	if len(q.due)+len(q.running) == 0 || time.Since(q.queried) >= dueQueryTime {
		repos, err := q.sources.FollowsDue(ctx, duePerOrg, duePerQuery)
		if err != nil {
			return err
		}
		q.queried, q.due = time.Now(), map[resource.Tenant][]resource.UID{}
		for _, repo := range repos {
			tenant := q.store.Tenant(ctx, repo)
			q.due[tenant] = append(q.due[tenant], repo)
		}
	}
	for tenant, repos := range q.due {
		for q.running[tenant] == nil && len(repos) > 0 {
			taken, ok, err := q.sources.TakeFollow(ctx, repos[0], q.holder)
			if err != nil {
				return err
			}
			if repos = repos[1:]; ok {
				q.running[tenant] = &run{Syncer: q.Syncer, FollowRun: taken}
			}
		}
		if q.due[tenant] = repos; len(repos) == 0 {
			delete(q.due, tenant)
		}
	}
	return nil
}

// A run is one sync, which makes a repo equal to its source.
type run struct {
	*Syncer
	sourcedb.FollowRun
	rules registry.Settings

	stage   int    // index of the current stage in step
	last    string // tag or digest after which the current stage continues
	copied  int
	removed int
	failed  []string // names of tags that could not be made equal
	reason  string   // reason for the first failure
}

// turn does a part of the run and reports whether the run has ended. It returns an error if the server cannot continue.
func (r *run) turn(ctx context.Context) (ended bool, _ error) {
	done, err := r.turns.Acquire(ctx, r.store.Tenant(ctx, r.Repo))
	if err != nil {
		return false, err
	}
	defer done()
	as := authz.WithCaller(ctx, authz.Caller{Identity: r.Identity})
	unfinished, err := r.step(resource.WithActor(as, resource.Actor{Subject: r.Identity}))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if unfinished && err == nil {
		return false, nil
	}
	end := r.result(ctx, err)
	err = r.sources.EndFollow(ctx, r.FollowRun, end)
	if errors.Is(err, fault.NotFound) { // the repo was deleted during the sync
		err = nil
	}
	r.count(end)
	return true, err
}

// count adds a run that has ended to the metrics.
func (r *run) count(end sourcedb.FollowEnd) {
	outcome := metric.OK
	if end.Error != "" {
		outcome = metric.Failed
	}
	if !end.Soon {
		r.metrics.Follows.Add(1, outcome)
	}
	r.metrics.FollowedTags.Add(int64(r.copied), metric.Copied)
	r.metrics.FollowedTags.Add(int64(r.removed), metric.Removed)
}

// result returns the result of a run. err is the error of its last step.
func (r *run) result(ctx context.Context, err error) sourcedb.FollowEnd {
	why, ok := errors.AsType[stopped](err)
	switch {
	case err == nil && len(r.failed) == 0:
		return sourcedb.FollowEnd{Whole: true}
	case err == nil:
		text := fmt.Sprintf(oneTagNotThere, r.reason)
		if len(r.failed) > 1 {
			text = fmt.Sprintf(tagsNotCopied, len(r.failed), r.reason)
		}
		return sourcedb.FollowEnd{Whole: true, Error: text, Failed: r.failed}
	case ok:
		return sourcedb.FollowEnd{Error: string(why)}
	case errors.Is(err, fault.Aborted): // the repo, its source or the settings changed during the sync
		return sourcedb.FollowEnd{Soon: true}
	}
	r.log.WarnContext(ctx, "a repo was not synced", "repo", r.Repo, "err", err)
	return sourcedb.FollowEnd{Error: notNow}
}

// stopped is an error with the reason why a sync cannot continue.
type stopped string

// Error implements error.
func (s stopped) Error() string { return string(s) }

// step does a part of the run and reports whether the run is unfinished.
func (r *run) step(ctx context.Context) (unfinished bool, err error) {
	if err := r.checkAllowed(ctx); err != nil {
		return false, err
	}
	if r.rules, err = r.store.RegistrySettings(ctx, r.Repo.Parent()); err != nil {
		return false, err
	}
	stages := []func(context.Context) (string, error){r.copyTags, r.dropTags, r.copyReferrers}
	for ; r.stage < len(stages); r.stage++ {
		r.last, err = stages[r.stage](ctx)
		if errors.Is(err, fault.NotFound) { // one of the repos or an image was deleted
			err = fault.New(fault.Aborted, "Aborted: it is not there any more")
		}
		if err != nil || r.last != "" {
			return true, err
		}
	}
	return false, nil
}

// checkAllowed returns stopped if the identity that set the source may no longer sync from it.
func (r *run) checkAllowed(ctx context.Context) error {
	for _, place := range []struct {
		uid   resource.UID
		needs []resource.Capability
		why   stopped
	}{{r.Source, SourceCapabilities, mayNotPull}, {r.Repo, RepoCapabilities, mayNotPush}} {
		err := r.authz.RequireAll(ctx, resource.NewCapabilities(place.needs...), place.uid)
		if errors.Is(err, fault.PermissionDenied) {
			return place.why
		}
		if err != nil {
			return err
		}
	}
	if _, err := r.store.Repo(ctx, r.Source); errors.Is(err, fault.NotFound) {
		return stopped(sourceGone)
	} else if err != nil {
		return err
	}
	err := r.mirror.RequireUnmirrored(ctx, r.Repo.Parent())
	if errors.Is(err, fault.FailedPrecondition) {
		return stopped(fault.From(err).Unmet[0].Description)
	}
	return err
}

// fail records that a tag could not be made equal to the tag of the source.
func (r *run) fail(tag, why string) {
	r.failed = append(r.failed, tag)
	r.reason = cmp.Or(r.reason, why)
}

// isKept reports whether a tag that points to another image than in the source must not be moved. If the settings
// demand unique tags, this is not a failure. If the tag is immutable, isKept records a failure.
func (r *run) isKept(name string) bool {
	switch {
	case r.rules.UniqueTags:
		return true
	case r.rules.Frozen(name):
		r.fail(name, tagImmutable)
		return true
	}
	return false
}

// copyTags copies the next tags of the source that are missing in the repo or name another image. It returns the last
// tag that it has handled, or "" if there are no more.
func (r *run) copyTags(ctx context.Context) (last string, _ error) {
	wanted, err := r.sources.FollowWanted(ctx, r.FollowRun, r.last, tagsPerTurn)
	if err != nil || len(wanted) == 0 {
		return "", err
	}
	var names []string
	for _, tag := range wanted {
		if tag.Here == "" || !r.isKept(tag.Name) {
			names = append(names, tag.Name)
		}
	}
	n, err := r.copy(ctx, names)
	if err != nil {
		return "", err
	}
	if n < len(names) { // the remaining tags do not fit into one transaction
		return names[n-1], nil
	}
	return wanted[len(wanted)-1].Name, nil
}

// copyReferrers copies the next artifacts of the source that are attached to images of the repo. It returns the last
// digest that it has handled, or "" if there are no more.
func (r *run) copyReferrers(ctx context.Context) (last string, _ error) {
	digests, err := r.sources.FollowReferrers(ctx, r.FollowRun, r.last, tagsPerTurn)
	if err != nil || len(digests) == 0 {
		return "", err
	}
	n, err := r.copy(ctx, digests)
	if err != nil || n == 0 {
		return "", err
	}
	return digests[n-1], nil
}

// copy copies the images that tags or digests name in the source, with the artifacts that are attached to them. It
// returns the number of references that it has handled. The others do not fit into the same transaction.
func (r *run) copy(ctx context.Context, references []string) (n int, _ error) {
	set, n, err := r.collect(ctx, references)
	if err != nil || len(set.Images) == 0 {
		return n, err
	}
	err = r.commit(ctx, set)
	missing, ok := errors.AsType[*registrydb.MissingError](err)
	switch {
	case ok && len(set.Images) > 1: // copy one at a time, to find out which image is incomplete
		for _, reference := range references[:n] {
			if _, err := r.copy(ctx, []string{reference}); err != nil {
				return n, err
			}
		}
		return n, nil
	case ok:
		r.log.DebugContext(ctx, "an image is not complete", "repo", r.Source, "lacks", missing.Needs[0].Digest)
		r.skip(references[0], tagIncomplete)
		return n, nil
	}
	return n, err
}

// collect reads the images that references name in the source. It returns the number of references that fit into one
// transaction.
func (r *run) collect(ctx context.Context, references []string) (set *imagecopy.Set, n int, _ error) {
	set = r.copier.NewSet(r.Source, false, true)
	for _, reference := range references {
		digest, err := set.TryAdd(ctx, reference)
		if imagecopy.IsTooLarge(err) && len(set.Images) > 0 {
			break
		}
		if imagecopy.IsTooLarge(err) { // add the image alone; copyReferrers copies its attached artifacts later
			digest, err = set.TryAddAlone(ctx, reference)
		}
		n++
		if why := skipReason(err); why != "" {
			r.skip(reference, why)
			continue
		}
		if errors.Is(err, fault.NotFound) { // the image was deleted during the sync
			continue
		}
		if err != nil {
			return set, n, err
		}
		err = r.copier.CountPullFrom(ctx, r.Source, false)
		if errors.Is(err, fault.ResourceExhausted) {
			return set, n, stopped(pullsUsedUp)
		}
		if err != nil {
			return set, n, err
		}
		image := registry.CopiedImage{Digest: digest}
		if oci.TagOf(reference) != "" {
			image.Tag, image.FromTag = reference, reference
		}
		set.Images = append(set.Images, image)
	}
	return set, n, nil
}

// skipReason returns the reason to skip an image if err means that a rule refuses it or that it is too large. It
// returns "" for other errors.
func skipReason(err error) string {
	switch {
	case imagecopy.IsRefused(err):
		return tagRefused
	case imagecopy.IsTooLarge(err):
		return tagTooLarge
	}
	return ""
}

// skip records that an image was not copied. If an attached artifact cannot be copied, this is not a failure.
// Otherwise anyone who can attach an artifact could prevent the sync of a repo.
func (r *run) skip(reference, why string) {
	if oci.TagOf(reference) != "" {
		r.fail(reference, why)
	}
}

// commit copies a set in one transaction.
func (r *run) commit(ctx context.Context, set *imagecopy.Set) error {
	var attached []registry.CopiedImage
	for _, a := range set.Attached {
		tag, err := r.store.TagNamed(ctx, r.Repo, a.Tag)
		if err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
		if err != nil || tag.Digest == a.Digest || !r.rules.UniqueTags && !r.rules.Frozen(a.Tag) {
			attached = append(attached, a)
		}
	}
	frozen := func(name string) bool { return r.rules.UniqueTags || r.rules.Frozen(name) }
	_, err := r.sources.CopyFollowed(ctx, r.FollowRun, registrydb.Copying{
		Manifests: set.Manifests, Images: set.Images, Attached: attached, Frozen: frozen,
	})
	if err != nil && fault.From(err).Quota != nil { // callers who may see the repo may not see the details of the budget
		return stopped(budgetFull + fault.From(err).Quota.Metric)
	}
	if imagecopy.IsUnmet(err, "TAG_IMMUTABLE") { // the settings changed during the sync
		return fault.New(fault.Aborted, "Aborted: the settings have changed")
	}
	if err == nil {
		for _, image := range set.Images {
			if image.Tag != "" {
				r.copied++
			}
		}
	}
	return err
}

// dropTags removes the next tags that the source does not have. It returns the tag after which the next call
// continues, or "" if there are no more.
func (r *run) dropTags(ctx context.Context) (last string, _ error) {
	if r.last == "" {
		if surplus, err := r.sources.FollowSurplus(ctx, r.FollowRun); err != nil || !surplus {
			return "", err
		}
	}
	removed, kept, next, err := r.sources.DropFollowed(ctx, r.FollowRun, r.last, tagsPerTurn)
	r.removed += removed
	for _, name := range kept {
		r.fail(name, tagImmutable)
	}
	return next, err
}
