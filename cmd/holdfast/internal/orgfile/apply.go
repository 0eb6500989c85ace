package orgfile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/plan"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
)

const (
	maxChanges = 20_000           // the largest number of changes in one transaction
	patience   = 10 * time.Minute // time limit of a call, unless --timeout is given
	planMark   = "holdfast plan 1\n"
)

// patient is like App.Ask for commands whose calls can take minutes.
func patient(
	a *noun.App, run func(ctx context.Context, cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	ask := a.Ask(run)
	return func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("timeout") {
			a.Timeout = patience
		}
		return ask(cmd, args)
	}
}

// readRevision returns the revision of the configuration of a group. It is read before the
// configuration, so that the server notices a change in between.
func readRevision(ctx context.Context, a *noun.App, group string) (string, error) {
	uid, err := a.Resolve(ctx, noun.Groups(), group)
	if err != nil {
		return "", err
	}
	req := &organizationpb.GetOrganizationStateRequest{Parent: uid}
	got, err := organizationpb.NewOrganizationServiceClient(a).GetOrganizationState(ctx, req)
	if status.Code(err) == codes.Unimplemented {
		return "", nil // the difference is still useful; check reports the reason
	}
	if err != nil {
		return "", signin.Refused(err, nil)
	}
	return got.GetRevision(), nil
}

// applyRequest returns the request that makes the changes.
func applyRequest(group, revision string, requests []plan.Request) (*organizationpb.ApplyOrganizationRequest, error) {
	req := &organizationpb.ApplyOrganizationRequest{Parent: group, Revision: revision}
	for _, r := range requests {
		packed, err := anypb.New(r.Message)
		if err != nil {
			return nil, err
		}
		req.Changes = append(req.Changes, &organizationpb.Change{Id: r.ID, Request: packed, Source: r.Source})
	}
	return req, nil
}

// check asks the server to validate the changes and to compute their consequences. If the
// caller may not make the changes, or the server cannot do this, the reason is noted. Other
// errors say that the changes are not possible.
func (c *comparison) check(ctx context.Context, a *noun.App) error {
	switch n := len(c.request.GetChanges()); {
	case n == 0 || c.refusal != "":
		return nil
	case c.request.GetRevision() == "":
		c.refusal = "this server cannot apply files"
		return nil
	case n > maxChanges:
		c.refusal = fmt.Sprintf("%d changes are more than the %d of one transaction", n, maxChanges)
		return nil
	}
	req := proto.CloneOf(c.request)
	req.ValidateOnly = true
	got, err := organizationpb.NewOrganizationServiceClient(a).ApplyOrganization(ctx, req)
	if status.Code(err) == codes.PermissionDenied {
		c.refusal = "you may not make these changes: " + signin.Refused(err, nil).Text
		return nil
	}
	if err != nil {
		refused := signin.Refused(err, nil)
		refused.Text = c.nameChange(refused.Text)
		return refused
	}
	c.checked = got
	return nil
}

// change matches the place of a change that is in no file, such as a deletion.
var change = regexp.MustCompile(`changes\[(\d{1,6})\]`)

// nameChange replaces places of changes in an error of the server by the resources.
func (c *comparison) nameChange(text string) string {
	return change.ReplaceAllStringFunc(text, func(place string) string {
		i, err := strconv.Atoi(change.FindStringSubmatch(place)[1])
		if err != nil || i >= len(c.requests) {
			return place
		}
		id, _, _ := strings.Cut(c.requests[i].ID, "-")
		for _, ch := range c.Changes {
			if ch.ID == id {
				return ch.Kind.One + " " + ch.Label()
			}
		}
		return place
	})
}

// secrets reports whether the changes contain values of secrets.
func (c *comparison) secrets() bool {
	for _, change := range c.Changes {
		for _, f := range change.Fields {
			if change.Kind.Field(f.Name) != nil && change.Kind.Field(f.Name).Secret {
				return true
			}
		}
	}
	return false
}

// save writes the plan to a file, which only its owner can read.
func (c *comparison) save(path string) error {
	switch {
	case len(c.Changes) == 0:
		return nil
	case c.secrets():
		return problem.New(problem.ExitError, "the plan was not written, because it would contain secrets").Hint(
			"apply the file itself: holdfast org apply -f FILE")
	case c.checked == nil:
		return problem.New(problem.ExitError, "the plan was not written, because the server did not confirm it: %s",
			c.refusal)
	}
	req := proto.CloneOf(c.request)
	req.Plan = c.checked.GetPlan()
	text, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(planMark), text...), 0o600)
}

// load reads a plan that save has written.
func load(path string) (*organizationpb.ApplyOrganizationRequest, error) {
	f, err := readFile(path)
	if err != nil {
		return nil, err
	}
	text, ok := bytes.CutPrefix(f.Text, []byte(planMark))
	req := &organizationpb.ApplyOrganizationRequest{}
	if !ok || len(f.Text) > format.MaxSize || proto.Unmarshal(text, req) != nil || len(req.GetPlan()) == 0 {
		return nil, problem.Usage("%s is not a plan", path).Hint(
			"holdfast org plan --out writes plans; apply a file with -f: holdfast org apply -f " + path)
	}
	return req, nil
}

func applyCommand(a *noun.App) *cobra.Command {
	var c choice
	var commit, by string
	cmd := &cobra.Command{
		Use: "apply [-f FILE | PLAN]", Short: "Make the changes of a file or of a plan, all of them or none",
		Long: "Sends all changes in one transaction. PLAN is a file of holdfast org plan --out: exactly these changes are\n" +
			"made, or none if something has changed since.",
		Example: "  holdfast org apply -f acme.yaml\n  holdfast org apply plan.bin --commit 4f2c01d --yes",
		Args:    cobra.MaximumNArgs(1),
		RunE: patient(a, func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (c.file != "") {
				return problem.Usage("give a plan, or a file with -f, and not both")
			}
			req, err := c.prepare(ctx, a, cmd, args)
			if err != nil || req == nil {
				return err
			}
			req.Commit, req.By = commit, by
			return send(ctx, a, req)
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&commit, "commit", "",
		"`VERSION` of the file, such as a git commit, for the event and the audit log")
	cmd.Flags().StringVar(&by, "by", "", "`WHO` approved the changes, for the event and the audit log")
	cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	return cmd
}

// prepare returns the request to send after the person has agreed, or nil if nothing would
// change.
func (c *choice) prepare(
	ctx context.Context, a *noun.App, cmd *cobra.Command, args []string,
) (*organizationpb.ApplyOrganizationRequest, error) {
	if len(args) == 1 {
		req, err := load(args[0])
		if err != nil {
			return nil, err
		}
		about := fmt.Sprintf("about to make %s", noun.Count(int32(len(req.GetChanges())), "change"))
		return req, a.Continue(ctx, cmd, []string{about}, "nothing was changed")
	}
	p, err := c.compare(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(p.Changes) == 0 {
		return nil, printPlan(a, p, false)
	}
	broken := p.check(ctx, a)
	if err := printPlan(a, p, false); err != nil {
		return nil, err
	}
	switch {
	case broken != nil:
		return nil, broken
	case p.checked == nil:
		return nil, problem.New(problem.ExitError, "nothing was changed: %s", p.refusal)
	}
	if err := a.Out.Flush(); err != nil {
		return nil, err
	}
	p.request.Plan = p.checked.GetPlan()
	about := fmt.Sprintf("about to make %s", noun.Count(int32(len(p.request.GetChanges())), "change"))
	return p.request, a.Continue(ctx, cmd, []string{about}, "nothing was changed")
}

// send makes the changes.
func send(ctx context.Context, a *noun.App, req *organizationpb.ApplyOrganizationRequest) error {
	a.Note("applying %s in one transaction", noun.Count(int32(len(req.GetChanges())), "change"))
	begin := time.Now()
	stop := progress(a, begin)
	got, err := organizationpb.NewOrganizationServiceClient(a).ApplyOrganization(ctx, req)
	stop()
	if err != nil {
		return signin.Refused(err, nil)
	}
	took := time.Since(begin).Round(time.Millisecond)
	a.Note("applied %s in %s", noun.Count(int32(len(got.GetResults())), "change"), took)
	return nil
}

// progress prints a line every ten seconds until stop is called. There is nothing to count,
// because the changes become visible together.
func progress(a *noun.App, begin time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				a.Note("still applying after %s", time.Since(begin).Round(time.Second))
			}
		}
	}()
	return func() { close(done); <-ended }
}
