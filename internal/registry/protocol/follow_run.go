package protocol

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
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

const (
	followTags = 100 // that one transaction changes

	followRound = 1000 // repos that the database is asked for at once
	followEach  = 20   // of them of one organization
	followAsk   = 250 * time.Millisecond
)

// Why a repo is not equal to its source, or a tag of it. Whoever may see the repo reads this, so nothing of it tells what is
// in the source.
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

// Follow makes all repos equal to their sources that are due, and returns how many tags it has copied and removed. Each
// organization has one repo at a time, of which one turn changes a hundred tags; then it waits for all others. It is safe to
// run beside other replicas. What fails for a repo is told in its status, and the others go on.
func (r *Registry) Follow(ctx context.Context) (copied, removed int, _ error) {
	q := followQueue{Service: NewService(nil, r), holder: rand.Text(), running: map[resource.UID]*following{}}
	defer func() {
		for _, f := range q.running { // another replica can go on
			_ = r.sourceStore.EndFollow(context.WithoutCancel(ctx), f.run, sourcedb.FollowEnd{Soon: true})
		}
	}()
	for {
		if err := q.fill(ctx); err != nil || len(q.running) == 0 {
			return copied, removed, err
		}
		for root, f := range q.running {
			ended, err := f.turn(ctx)
			if err != nil {
				return copied, removed, err
			}
			if ended {
				copied, removed = copied+f.copied, removed+f.removed
				delete(q.running, root)
			}
		}
	}
}

// A followQueue has what is due, and what is being done.
type followQueue struct {
	*Service
	holder  string
	asked   time.Time                       // when the database was last asked what is due
	due     map[resource.UID][]resource.UID // by organization
	running map[resource.UID]*following     // by organization
}

// fill begins a run for each organization that has none and has a repo that is due. The database is not asked before each
// turn, because an organization may have very many that are due.
func (q *followQueue) fill(ctx context.Context) error {
	if len(q.due)+len(q.running) == 0 || time.Since(q.asked) >= followAsk {
		all, err := q.sourceStore.FollowsDue(ctx, followEach, followRound)
		if err != nil {
			return err
		}
		q.asked, q.due = time.Now(), map[resource.UID][]resource.UID{}
		for _, repo := range all {
			q.due[repo.Root()] = append(q.due[repo.Root()], repo)
		}
	}
	for root, repos := range q.due {
		for q.running[root] == nil && len(repos) > 0 {
			run, ok, err := q.sourceStore.TakeFollow(ctx, repos[0], q.holder)
			if err != nil {
				return err
			}
			if repos = repos[1:]; ok {
				q.running[root] = &following{Service: q.Service, run: run}
			}
		}
		if q.due[root] = repos; len(repos) == 0 {
			delete(q.due, root)
		}
	}
	return nil
}

// A following makes one repo equal to its source.
type following struct {
	*Service
	run   sourcedb.FollowRun
	rules registry.Settings

	stage   int    // of what is to be done
	last    string // what was done last at this stage
	copied  int
	removed int
	failed  []string // tags
	reason  string   // why the first of them failed
}

// turn does a part, and reports whether it was the last. It returns an error if the server cannot go on.
func (f *following) turn(ctx context.Context) (ended bool, _ error) {
	done, err := f.images.following.Acquire(ctx, f.run.Repo.Root())
	if err != nil {
		return false, err
	}
	defer done()
	more, err := f.step(resource.WithActor(authz.WithCaller(ctx, authz.Caller{Identity: f.run.Identity}), resource.Actor{Subject: f.run.Identity}))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if more && err == nil {
		return false, nil
	}
	end := f.end(ctx, err)
	err = f.sourceStore.EndFollow(ctx, f.run, end)
	if errors.Is(err, fault.NotFound) { // the repo is gone
		err = nil
	}
	f.count(end)
	return true, err
}

// count counts a run that has ended.
func (f *following) count(end sourcedb.FollowEnd) {
	outcome := metric.OK
	if end.Error != "" {
		outcome = metric.Failed
	}
	if !end.Soon {
		f.cfg.Metrics.Follows.Add(1, outcome)
	}
	f.cfg.Metrics.FollowedTags.Add(int64(f.copied), metric.Copied)
	f.cfg.Metrics.FollowedTags.Add(int64(f.removed), metric.Removed)
}

// end returns how a run has ended, if err is the error of its last part.
func (f *following) end(ctx context.Context, err error) sourcedb.FollowEnd {
	why, told := errors.AsType[stopped](err)
	switch {
	case err == nil && len(f.failed) == 0:
		return sourcedb.FollowEnd{Whole: true}
	case err == nil:
		text := fmt.Sprintf(oneTagNotThere, f.reason)
		if len(f.failed) > 1 {
			text = fmt.Sprintf(tagsNotCopied, len(f.failed), f.reason)
		}
		return sourcedb.FollowEnd{Whole: true, Error: text, Failed: f.failed}
	case told:
		return sourcedb.FollowEnd{Error: string(why)}
	case errors.Is(err, fault.Aborted): // something has changed meanwhile
		return sourcedb.FollowEnd{Soon: true}
	}
	f.cfg.Log.WarnContext(ctx, "a repo was not made equal to its source", "repo", f.run.Repo, "err", err)
	return sourcedb.FollowEnd{Error: notNow}
}

// stopped is why a run cannot go on.
type stopped string

// Error implements error.
func (s stopped) Error() string { return string(s) }

// step does a part of what is to be done, and reports whether there is more.
func (f *following) step(ctx context.Context) (more bool, err error) {
	if err := f.allowed(ctx); err != nil {
		return false, err
	}
	if f.rules, err = f.store.RegistrySettings(ctx, f.run.Repo.Parent()); err != nil {
		return false, err
	}
	for stages := []func(context.Context) (string, error){f.copyTags, f.dropTags, f.copyReferrers}; f.stage < len(stages); f.stage++ {
		f.last, err = stages[f.stage](ctx)
		if errors.Is(err, fault.NotFound) { // one of the repos, or what is copied
			err = fault.New(fault.Aborted, "Aborted: it is not there any more")
		}
		if err != nil || f.last != "" {
			return true, err
		}
	}
	return false, nil
}

// allowed returns why whoever has set the source may not follow it any more.
func (f *following) allowed(ctx context.Context) error {
	for _, place := range []struct {
		uid   resource.UID
		needs []resource.Capability
		why   stopped
	}{{f.run.Source, sources, mayNotPull}, {f.run.Repo, followers, mayNotPush}} {
		err := f.authz.RequireAll(ctx, resource.NewCapabilities(place.needs...), place.uid)
		if errors.Is(err, fault.PermissionDenied) {
			return place.why
		}
		if err != nil {
			return err
		}
	}
	if _, err := f.store.Repo(ctx, f.run.Source); errors.Is(err, fault.NotFound) {
		return stopped(sourceGone)
	} else if err != nil {
		return err
	}
	err := f.requireUnmirrored(ctx, f.run.Repo.Parent())
	if errors.Is(err, fault.FailedPrecondition) {
		return stopped(fault.From(err).Unmet[0].Description)
	}
	return err
}

// fail notes that a tag could not be made equal.
func (f *following) fail(tag, why string) {
	f.failed = append(f.failed, tag)
	f.reason = cmp.Or(f.reason, why)
}

// kept reports whether a tag that stands for something else here must not be moved. If the settings want each tag to be
// unique, that is as it should be; otherwise it is a failure.
func (f *following) kept(name string) bool {
	switch {
	case f.rules.UniqueTags:
		return true
	case f.rules.Frozen(name):
		f.fail(name, tagImmutable)
		return true
	}
	return false
}

// copyTags copies the next tags that the source has and the repo does not, or has elsewhere. It returns the last that it
// came to, or "".
func (f *following) copyTags(ctx context.Context) (last string, _ error) {
	wanted, err := f.sourceStore.FollowWanted(ctx, f.run, f.last, followTags)
	if err != nil || len(wanted) == 0 {
		return "", err
	}
	var names []string
	for _, g := range wanted {
		if g.Here == "" || !f.kept(g.Name) {
			names = append(names, g.Name)
		}
	}
	n, err := f.copy(ctx, names)
	if err != nil {
		return "", err
	}
	if n < len(names) { // the rest is too much for one transaction
		return names[n-1], nil
	}
	return wanted[len(wanted)-1].Name, nil
}

// copyReferrers copies the next of what is attached in the source to something that the repo has.
func (f *following) copyReferrers(ctx context.Context) (last string, _ error) {
	digests, err := f.sourceStore.FollowReferrers(ctx, f.run, f.last, followTags)
	if err != nil || len(digests) == 0 {
		return "", err
	}
	n, err := f.copy(ctx, digests)
	if err != nil || n == 0 {
		return "", err
	}
	return digests[n-1], nil
}

// copy copies what tags or digests name in the source, with all that is attached to it, and returns how many of them it came
// to: those that are too much for one transaction are left out.
func (f *following) copy(ctx context.Context, references []string) (n int, _ error) {
	g := &gatherer{Service: f.Service, from: f.run.Source, referrers: true, seen: map[string]bool{}}
	for _, reference := range references {
		digest, err := g.try(ctx, reference)
		if violates(err, tooManyManifests, tooManyBlobs) && len(g.images) > 0 {
			break
		}
		if violates(err, tooManyManifests, tooManyBlobs) { // then what is attached comes by copyReferrers
			g.referrers = false
			digest, err = g.try(ctx, reference)
			g.referrers = true
		}
		n++
		if why := unfit(err); why != "" {
			f.skip(reference, why)
			continue
		}
		if errors.Is(err, fault.NotFound) { // it was deleted meanwhile
			continue
		}
		if err != nil {
			return n, err
		}
		if f.cfg.CountPull != nil {
			if err := f.cfg.CountPull(ctx, f.run.Source, false); errors.Is(err, fault.ResourceExhausted) {
				return n, stopped(pullsUsedUp)
			} else if err != nil {
				return n, err
			}
		}
		i := registry.CopiedImage{Digest: digest}
		if tagOf(reference) != "" {
			i.Tag, i.FromTag = reference, reference
		}
		g.images = append(g.images, i)
	}
	if len(g.images) == 0 {
		return n, nil
	}
	err := f.commit(ctx, g)
	missing, ok := errors.AsType[*registrydb.MissingError](err)
	switch {
	case ok && len(g.images) > 1: // find out which
		for _, reference := range references[:n] {
			if _, err := f.copy(ctx, []string{reference}); err != nil {
				return n, err
			}
		}
		return n, nil
	case ok:
		f.cfg.Log.DebugContext(ctx, "an image is not complete", "repo", f.run.Source, "lacks", missing.Needs[0].Digest)
		f.skip(references[0], tagIncomplete)
		return n, nil
	}
	return n, err
}

// unfit returns why an image cannot be copied, or "".
func unfit(err error) string {
	switch {
	case isRefused(err):
		return tagRefused
	case violates(err, tooManyManifests, tooManyBlobs):
		return tagTooLarge
	}
	return ""
}

// skip notes that an image was not copied. What is attached and cannot be copied is left out, as by a copy: whoever may attach
// something must not keep a repo from being equal.
func (f *following) skip(reference, why string) {
	if tagOf(reference) != "" {
		f.fail(reference, why)
	}
}

// commit copies what was gathered.
func (f *following) commit(ctx context.Context, g *gatherer) error {
	var attached []registry.CopiedImage
	for _, a := range g.attached {
		here, err := f.store.TagNamed(ctx, f.run.Repo, a.Tag)
		if err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
		if err != nil || here.Digest == a.Digest || !f.rules.UniqueTags && !f.rules.Frozen(a.Tag) {
			attached = append(attached, a)
		}
	}
	frozen := func(name string) bool { return f.rules.UniqueTags || f.rules.Frozen(name) }
	_, err := f.sourceStore.CopyFollowed(ctx, f.run, registrydb.Copying{
		Manifests: g.manifests, Images: g.images, Attached: attached, Frozen: frozen,
	})
	if err != nil && fault.From(err).Quota != nil { // whose and how large it is, is not for everybody who sees the repo
		return stopped(budgetFull + fault.From(err).Quota.Metric)
	}
	if violates(err, "TAG_IMMUTABLE") { // somebody has changed the settings meanwhile
		return fault.New(fault.Aborted, "Aborted: the settings have changed")
	}
	if err == nil {
		for _, i := range g.images {
			if i.Tag != "" {
				f.copied++
			}
		}
	}
	return err
}

// dropTags removes the next tags that the source does not have.
func (f *following) dropTags(ctx context.Context) (last string, _ error) {
	if f.last == "" {
		if some, err := f.sourceStore.FollowSurplus(ctx, f.run); err != nil || !some {
			return "", err
		}
	}
	removed, kept, next, err := f.sourceStore.DropFollowed(ctx, f.run, f.last, followTags)
	f.removed += removed
	for _, name := range kept {
		f.fail(name, tagImmutable)
	}
	return next, err
}
