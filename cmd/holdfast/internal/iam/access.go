package iam

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
)

// Access returns the commands for requesting and granting roles for a limited time.
func Access(a *noun.App) *cobra.Command {
	rules := a.Branch("rules", "Define which roles can be requested, and who approves", rulesCreate(a), rulesList(a),
		a.DeleteCommand(accessRules()))
	requests := a.Branch("requests", "Show and decide requests for roles", requestsList(a), requestsShow(a),
		approveCommand(a), denyCommand(a), handBackCommand(a))
	cmd := a.Branch("access", "Request and grant roles for a limited time", requestCommand(a), requests, rules,
		unusedCommand(a), endingCommand(a))
	cmd.Long = "A rule states which role can be requested on a group, by whom and for how long. The role is granted\n" +
		"for that time when others, who hold it themselves, have approved the request."
	return cmd
}

func accessRules() noun.Noun {
	longest := func(r *accesspb.AccessRule) string { return r.GetMaxDuration().AsDuration().String() }
	approval := func(r *accesspb.AccessRule) string {
		if r.GetBreakGlass() {
			return "none"
		}
		return fmt.Sprint(r.GetApprovers())
	}
	reason := func(r *accesspb.AccessRule) string {
		if r.GetReasonRequired() {
			return "required"
		}
		return "optional"
	}
	return noun.Noun{
		Area: "access", Use: "rules", One: "access rule", Message: noun.MessageOf(&accesspb.AccessRule{}),
		Columns: output.Columns(output.NameOf("role", "roleUid"), output.GroupOf("on", "uid"), output.Text("max", longest),
			output.Text("approvers", approval), output.Text("reason", reason),
			output.NameOf("requester", "requesterRoleUid"), "uid"),
		Wide: output.Columns("breakGlass", "createTime"),
	}
}

func accessRequests() noun.Noun {
	length := func(r *accesspb.AccessRequest) string { return r.GetDuration().AsDuration().String() }
	approved := func(r *accesspb.AccessRequest) string {
		return fmt.Sprintf("%d of %d", len(r.GetApprovals()), r.GetApprovers())
	}
	return noun.Noun{
		Area: "access", Use: "requests", One: "access request", Message: noun.MessageOf(&accesspb.AccessRequest{}),
		Columns: output.Columns(output.NameOf("identity", "identityUid"), output.NameOf("role", "roleUid"),
			output.GroupOf("on", "uid"), output.Text("for", length), "state", output.Text("approved", approved), "expireTime",
			"reason", "uid"),
		Wide: output.Columns("breakGlass", "createTime", "grantTime", "bindingUid", "closerUid", "closeTime"),
	}
}

// accessFlags maps fields to flags, for error messages.
var accessFlags = []string{"role_uid=ROLE", "parent=--on", "duration=--for", "max_duration=--max", "reason=--reason",
	"approvers=--approvers", "requester_role_uid=--requester"}

func rulesCreate(a *noun.App) *cobra.Command {
	var on, longest, requester string
	rule := &accesspb.AccessRule{}
	cmd := &cobra.Command{
		Use: "create ROLE --on GROUP --max DURATION", Short: "Allow requests for a role on a group",
		Example: "  holdfast access rules create editor --on acme/prod --max 8h --approvers 2 --reason-required",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&longest, "max", "", "the longest `DURATION` of the role, such as 8h or 30d")
	f.Int32Var(&rule.Approvers, "approvers", 0, "number `N` of people who have to approve: 1 or 2 (default 1)")
	f.BoolVar(&rule.ReasonRequired, "reason-required", false, "a request needs a reason")
	f.BoolVar(&rule.BreakGlass, "break-glass", false, "the role can be taken immediately, without an approval")
	a.RegisterRef(cmd, &on, "on", noun.Groups(), "`GROUP` on which it can be requested")
	a.RegisterRef(cmd, &requester, "requester", Roles(),
		"only holders of this `ROLE` on the group or a parent group can request it")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		parent, role, err := placed(ctx, a, on, args[0])
		if err != nil {
			return err
		}
		rule.RoleUid = role
		if requester != "" {
			if rule.RequesterRoleUid, err = a.Resolve(ctx, Roles(), requester); err != nil {
				return err
			}
		}
		if rule.MaxDuration, err = length("max", longest); err != nil {
			return err
		}
		dry, _ := cmd.Flags().GetBool("dry-run")
		req := &accesspb.CreateAccessRuleRequest{Parent: parent, AccessRule: rule, ValidateOnly: dry}
		m, err := signin.Call(ctx, accesspb.NewAccessRequestsServiceClient(a).CreateAccessRule, req, accessFlags...)
		if err != nil {
			return err
		}
		noteDryRun(a, dry)
		return a.Show(ctx, accessRules().View(), m)
	})
	return cmd
}

// placed returns the UIDs of a group and a role. The group is required.
func placed(ctx context.Context, a *noun.App, on, role string) (group, uid string, err error) {
	if on == "" {
		return "", "", problem.Usage("--on is needed")
	}
	if group, err = a.Resolve(ctx, noun.Groups(), on); err != nil {
		return "", "", err
	}
	uid, err = a.Resolve(ctx, Roles(), role)
	return group, uid, err
}

// length parses the value of a required flag.
func length(flag, text string) (*durationpb.Duration, error) {
	if text == "" {
		return nil, problem.Usage("--%s is needed", flag)
	}
	d, err := noun.ParseDuration(text)
	if err != nil {
		return nil, problem.Usage("--%s: %v", flag, err)
	}
	return durationpb.New(d), nil
}

func noteDryRun(a *noun.App, dry bool) {
	if dry {
		a.Note("dry run: nothing was changed")
	}
}

// below returns a filter for a group and its subgroups, or nil if group is "".
func below(ctx context.Context, a *noun.App, group string) (*commonpb.UIDPFilter, error) {
	if group == "" {
		return nil, nil
	}
	uid, err := a.Resolve(ctx, noun.Groups(), group)
	return &commonpb.UIDPFilter{DescendantsOf: uid}, err
}

func rulesList(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	cmd := &cobra.Command{
		Use: "list", Short: "List which roles can be requested", Aliases: []string{"ls"}, Args: cobra.NoArgs,
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only rules of `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		uidp, err := below(ctx, a, group)
		if err != nil {
			return err
		}
		return a.PrintAll(ctx, accessRules(), &accesspb.ListAccessRulesRequest{Uidp: uidp}, p)
	})
	return cmd
}

func requestCommand(a *noun.App) *cobra.Command {
	var on, long string
	r := &accesspb.AccessRequest{}
	cmd := &cobra.Command{
		Use: "request ROLE --on GROUP --for DURATION", Short: "Request a role on a group for a limited time",
		Long: "Requests a role for yourself. The time starts when the role is granted. With --break-glass the role is\n" +
			"granted immediately, if a rule allows that, and subscribers of the event are notified.",
		Example: "  holdfast access request editor --on acme/prod --for 2h --reason 'incident 7'",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&long, "for", "", "`DURATION` for which it is needed, such as 2h")
	f.StringVar(&r.Reason, "reason", "", "`TEXT` with the reason")
	f.BoolVar(&r.BreakGlass, "break-glass", false, "take the role immediately")
	a.RegisterRef(cmd, &on, "on", noun.Groups(), "`GROUP` on which it is needed")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		parent, role, err := placed(ctx, a, on, args[0])
		if err != nil {
			return err
		}
		r.RoleUid = role
		if r.Duration, err = length("for", long); err != nil {
			return err
		}
		dry, _ := cmd.Flags().GetBool("dry-run")
		req := &accesspb.CreateAccessRequestRequest{Parent: parent, AccessRequest: r, ValidateOnly: dry}
		m, err := signin.Call(ctx, accesspb.NewAccessRequestsServiceClient(a).CreateAccessRequest, req, accessFlags...)
		if err != nil {
			return err
		}
		noteDryRun(a, dry)
		return a.Show(ctx, accessRequests().View(), m)
	})
	return cmd
}

func requestsList(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	req := &accesspb.ListAccessRequestsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List requests, newest first", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Example: "  holdfast access requests list --mine",
	}
	p.Register(cmd)
	cmd.Flags().BoolVar(&req.Mine, "mine", false, "only your own requests")
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only requests for `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if req.Uidp, err = below(ctx, a, group); err != nil {
			return err
		}
		return a.PrintAll(ctx, accessRequests(), req, p)
	})
	return cmd
}

func requestsShow(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "show UID", Short: "Show a request", Args: cobra.ExactArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			get := accesspb.NewAccessRequestsServiceClient(a).GetAccessRequest
			m, err := signin.Call(ctx, get, &accesspb.GetAccessRequestRequest{Uid: args[0]}, "uid=UID")
			if err != nil {
				return err
			}
			return a.Show(ctx, accessRequests().View(), m)
		}),
	}
}

func approveCommand(a *noun.App) *cobra.Command {
	request := func(uid string, dry bool) *accesspb.ApproveAccessRequestRequest {
		return &accesspb.ApproveAccessRequestRequest{Uid: uid, ValidateOnly: dry}
	}
	return decide(a, "approve", "Approve requests; the last required approval grants the role",
		accesspb.AccessRequestsServiceClient.ApproveAccessRequest, request)
}

func denyCommand(a *noun.App) *cobra.Command {
	request := func(uid string, dry bool) *accesspb.DenyAccessRequestRequest {
		return &accesspb.DenyAccessRequestRequest{Uid: uid, ValidateOnly: dry}
	}
	return decide(a, "deny", "Deny requests", accesspb.AccessRequestsServiceClient.DenyAccessRequest, request)
}

func handBackCommand(a *noun.App) *cobra.Command {
	request := func(uid string, dry bool) *accesspb.HandBackAccessRequestRequest {
		return &accesspb.HandBackAccessRequestRequest{Uid: uid, ValidateOnly: dry}
	}
	return decide(a, "hand-back", "Withdraw requests, or hand back granted roles",
		accesspb.AccessRequestsServiceClient.HandBackAccessRequest, request)
}

// decide returns a command that calls a method for each request in its arguments.
func decide[R any](
	a *noun.App, use, short string,
	method func(accesspb.AccessRequestsServiceClient, context.Context, R,
		...grpc.CallOption) (*accesspb.AccessRequest, error),
	request func(uid string, dry bool) R,
) *cobra.Command {
	cmd := &cobra.Command{Use: use + " UID...", Short: short, Args: cobra.MinimumNArgs(1)}
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		dry, _ := cmd.Flags().GetBool("dry-run")
		call := func(ctx context.Context, req R, opts ...grpc.CallOption) (*accesspb.AccessRequest, error) {
			return method(accesspb.NewAccessRequestsServiceClient(a), ctx, req, opts...)
		}
		for _, uid := range args {
			m, err := signin.Call(ctx, call, request(uid, dry), "uid=UID")
			if err != nil {
				return err
			}
			noteDryRun(a, dry)
			if err := a.Show(ctx, accessRequests().View(), m); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}
