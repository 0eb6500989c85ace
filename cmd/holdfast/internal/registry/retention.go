package registry

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// retention returns the Noun for the rules that determine which images are kept.
func retention() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "retention", One: "rules", Short: "Set rules for which images are kept, and delete the rest",
		Form: "GROUP|REPO",
		About: "An image is kept if at least one rule keeps it. A run moves all other images to the trash, with their\n" +
			"tags, the images that only they list, and their referrers. The rules of the nearest group or repo that\n" +
			"has any apply. Images with an immutable tag are never deleted.",
		Message: noun.MessageOf(&ocipb.Retention{}),
		Locate:  locatePlace,
		Columns: output.Columns("keepNewest", "keepMatching", "keepYoungerDays", "keepPulledDays", "keepMinors",
			"keepDeployed", "keepSigned", "keepNeeded", "everyDays", output.PathOf("rules of", "sourceUid")),
		Wide:  output.Columns("uid", "sourceUid", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{retentionSet, retentionPreview, retentionRun},
	}
}

// retentionRules returns the flags that set the rules.
func retentionRules() []noun.Field {
	return []noun.Field{
		{
			Flag: "keep-newest", Read: readCount("keep_newest"),
			Help: "keep the `N` tagged images that were last pushed or tagged",
		},
		{Flag: "keep-matching", Help: "keep images with a tag that matches `PATTERN`, such as v*; can be repeated"},
		{
			Flag: "keep-younger", Path: "keep_younger_days", Read: readDays("keep_younger_days"),
			Help: "keep images that were pushed or tagged in the last `DAYS`, such as 30d",
		},
		{
			Flag: "keep-pulled", Path: "keep_pulled_days", Read: readDays("keep_pulled_days"),
			Help: "keep images that were pulled in the last `DAYS`",
		},
		{Flag: "keep-minors", Read: readCount("keep_minors"), Help: "keep the images of the last `N` minor versions"},
		{Flag: "keep-deployed", Help: "keep images that run, according to the inventory"},
		{Flag: "keep-signed", Help: "keep images with a signature"},
		{Flag: "keep-needed", Help: "keep images that other images are built on"},
		{
			Flag: "every", Path: "every_days", Read: readDays("every_days"),
			Help: "run the rules automatically every so many `DAYS`",
		},
	}
}

// readCount returns a function that sets a field to a number.
func readCount(field string) func(protoreflect.Message, []string) error {
	return func(m protoreflect.Message, texts []string) error {
		n, err := strconv.ParseInt(texts[0], 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number", texts[0])
		}
		noun.Put(m, field, int32(n))
		return nil
	}
}

// locatePlace finds a group or a repo.
func locatePlace(ctx context.Context, a *noun.App, text string) (string, error) {
	uid, err := a.Resolve(ctx, noun.Groups(), text)
	if err == nil {
		return uid, nil
	}
	if repo, notRepo := a.Resolve(ctx, Repos(), text); notRepo == nil {
		return repo, nil
	}
	return "", err
}

func retentionSet(a *noun.App) *cobra.Command {
	n := retention()
	cmd := &cobra.Command{
		Use: "set " + n.Form, Short: "Set the rules of a group or repo",
		Long: "Replaces all rules of a group or a repo. Nothing is deleted until the rules are run. With --every they\n" +
			"run automatically, for the first time after a day.",
		Example: "  holdfast registry retention set acme/app --keep-newest 10 --keep-matching 'v*' --keep-younger 30d",
	}
	fields := retentionRules()
	a.RegisterFields(cmd, fields, n.Message)
	noun.AddDryRun(cmd)
	return a.About(n, cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &ocipb.SetRetentionRequest{Retention: &ocipb.Retention{Uid: uid}}
		if err := a.Fill(ctx, cmd, fields, req.GetRetention()); err != nil {
			return err
		}
		flags := map[string]string{"retention.uid": n.Form, "uid": n.Form}
		for _, f := range fields {
			flags[cmp.Or(f.Path, strings.ReplaceAll(f.Flag, "-", "_"))] = "--" + f.Flag
		}
		m, err := a.Write(ctx, cmd, n.Method("Set"), req.ProtoReflect(), flags)
		if err != nil {
			return err
		}
		return a.Show(ctx, n.View(), m.Interface())
	})
}

// goingImages returns the View for images that a run deletes.
func goingImages() output.View {
	tags := func(g *ocipb.GoingImage) string { return strings.Join(g.GetTags(), ", ") }
	bytes := func(g *ocipb.GoingImage) string { return size(g.GetSize()) }
	return output.View{
		Plural: "images", ID: "digest",
		Columns: output.Columns("digest", output.Text("tags", tags), "pushed=pushTime", output.Text("size", bytes),
			"pulled=pullTime", "by=puller"),
		Wide: output.Columns("mediaType", "withDigests", "pullerUid"),
	}
}

// reposBelow returns the UIDs and names of the repos in a group and its subgroups, or of
// the repo itself.
func reposBelow(ctx context.Context, a *noun.App, text string) (uids, names []string, _ error) {
	group, err := a.Resolve(ctx, noun.Groups(), text)
	if err != nil {
		uid, notRepo := a.Resolve(ctx, Repos(), text)
		if notRepo != nil {
			return nil, nil, err
		}
		return []string{uid}, []string{text}, nil
	}
	req := &registrypb.ListReposRequest{Uidp: &commonpb.UIDPFilter{DescendantsOf: group}, PageSize: 200, OrderBy: "name"}
	for {
		page, err := signin.Call(ctx, registrypb.NewReposServiceClient(a).ListRepos, req)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page.GetRepos() {
			uids = append(uids, r.GetUid())
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	called := a.Called(ctx, uids...)
	for _, uid := range uids {
		names = append(names, called(uid).Path)
	}
	return uids, names, nil
}

// preview prints what a run would delete from a repo. It returns nil if no rules apply to
// the repo.
func preview(ctx context.Context, a *noun.App, uid, name string, alone bool) (*ocipb.RetentionPlan, error) {
	plan, err := signin.Call(ctx, ocipb.NewRetentionServiceClient(a).PreviewRetention,
		&ocipb.PreviewRetentionRequest{Uid: uid}, "uid=REPO")
	if err != nil && !alone && problem.From(ctx, err).Code == problem.ExitNotFound { // no rules apply to this repo
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	describe(a, name, plan, "would be deleted")
	return plan, noun.ShowAnswer(ctx, a, goingImages(), plan, plan.GetGoing(), nil)
}

// describe prints how many images of a repo are deleted, and why the rest is kept.
func describe(a *noun.App, name string, p *ocipb.RetentionPlan, what string) {
	var kept []string
	for _, k := range p.GetKept() {
		word := strings.ToLower(strings.TrimPrefix(k.GetReason().String(), "KEEP_REASON_"))
		kept = append(kept, fmt.Sprintf("%d %s", k.GetImages(), strings.ReplaceAll(word, "_", " ")))
	}
	text := fmt.Sprintf("%s: %d of %s %s, with %s and %s", name, len(p.GetGoing()), noun.Count(p.GetImages(), "image"),
		what, noun.Count(p.GetTags(), "tag"), size(p.GetBytes()))
	if len(kept) > 0 {
		text += "; kept: " + strings.Join(kept, ", ")
	}
	switch {
	case p.GetImages() > 0 && len(p.GetGoing()) == int(p.GetImages()):
		text += "; no rule keeps anything"
	case len(p.GetGoing()) == 0 && p.GetImages() > 0:
		text += "; the rules keep everything"
	}
	a.Note("%s", text)
	if len(p.GetGoing()) > 0 && p.GetRestorableDays() == 0 {
		a.Note("%s: this cannot be restored, because the group has no trash", name)
	}
	if p.GetMore() {
		a.Note("%s: the next run deletes more", name)
	}
}

func retentionPreview(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "preview GROUP|REPO", Short: "Show what the rules would delete now",
		Long: "Shows for a repo, or for each repo below a group, what a run would delete, its size, and the last\n" +
			"pull. The server runs the rules and rolls the run back, so nothing is deleted.",
		Example: "  holdfast registry retention preview acme/app",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteArgs(Repos()),
	}
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		uids, names, err := reposBelow(ctx, a, args[0])
		if err != nil {
			return err
		}
		for i, uid := range uids {
			if _, err := preview(ctx, a, uid, names[i], len(uids) == 1); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func retentionRun(a *noun.App) *cobra.Command {
	var fingerprint string
	cmd := &cobra.Command{
		Use: "run GROUP|REPO", Short: "Delete the images that no rule keeps",
		Long: "Shows what the rules would delete, asks for confirmation, and deletes exactly that. If the result has\n" +
			"changed in the meantime, nothing is deleted. With the fingerprint of a repo's preview (-o json) it\n" +
			"deletes what that preview shows.",
		Example: "  holdfast registry retention run acme/app --yes",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteArgs(Repos()),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "delete what the preview with this `FINGERPRINT` shows")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		uids, names, err := reposBelow(ctx, a, args[0])
		if err != nil {
			return err
		}
		if fingerprint != "" && len(uids) != 1 {
			return problem.Usage("--fingerprint needs a repo, and %s is a group", args[0])
		}
		for i, uid := range uids {
			if err := runOne(ctx, a, cmd, uid, names[i], fingerprint, len(uids) == 1); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// runOne runs the rules for one repo.
func runOne(ctx context.Context, a *noun.App, cmd *cobra.Command, uid, name, fingerprint string, alone bool) error {
	if fingerprint == "" {
		plan, err := preview(ctx, a, uid, name, alone)
		if err != nil || len(plan.GetGoing()) == 0 {
			return err
		}
		fingerprint = plan.GetFingerprint()
	}
	n := retention()
	n.One = "the images that no rule keeps in"
	if err := a.Confirm(ctx, cmd, n, []string{name}, []string{uid}); err != nil {
		return err
	}
	method := n.Message.ParentFile().Services().Get(0).Methods().ByName("RunRetention")
	req := &ocipb.RunRetentionRequest{Uid: uid, Fingerprint: fingerprint}
	m, err := a.Write(ctx, cmd, method, req.ProtoReflect(),
		map[string]string{"uid": "REPO", "fingerprint": "--fingerprint"})
	if err != nil {
		return err
	}
	done := m.Interface().(*ocipb.RetentionPlan)
	describe(a, name, done, "were deleted")
	if days := done.GetRestorableDays(); days > 0 && len(done.GetGoing()) > 0 {
		a.Note("they can be restored for %d days: holdfast registry trash list --repo %s", days, name)
	}
	return nil
}
