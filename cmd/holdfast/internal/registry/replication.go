package registry

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// replications returns the Noun for replications: copies of tags to other registries.
func replications() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "replications", One: "replication",
		Short: "Copy images to other registries",
		About: "A replication copies tags of the repos below a group to another registry, with indexes, signatures, SBOMs\n" +
			"and everything else that is attached to their images. A repo acme/prod/app of the group acme/prod is named\n" +
			"PATH/app there. A replication acts with the access of the person or workload that last changed it.",
		Example: "  holdfast registry replications create partner --group acme/prod \\\n" +
			"    --address https://registry.example.org --path acme --tags 'v*' --credentials token.txt",
		Message: noun.MessageOf(&ocipb.Replication{}),

		Argument: "name", ParentFlag: "group",
		Fields: []noun.Field{
			{Flag: "address", Help: "`ADDRESS` of the target registry, such as https://ghcr.io; it cannot change later"},
			{Flag: "path", Help: "`PATH` at the target under which the repos appear; it cannot change later"},
			{
				Flag: "realm",
				Help: "`ADDRESS` of the target's token service, if it is on another host; it receives the credentials",
			},
			{
				Flag: "repos",
				Help: "`PATTERN` of repos below the group, such as 'app', 'team/**' or '!team/secret'; can be repeated",
			},
			{Flag: "tags", Help: "`PATTERN` of tags, such as 'v*' or '!*-dev'; can be repeated"},
			{Flag: "signed-only", Help: "copy only images that a signer of the group of their repo has signed"},
			{Flag: "trigger", Help: "`WHEN` to copy: push, schedule or manual (default: push)"},
			{Flag: "interval", Help: "`DURATION` between two runs, such as 1h or 1d; only with --trigger schedule"},
			{Flag: "follow-deletions", Help: "also delete tags at the target"},
			{Flag: "paused", Help: "copy nothing for now"},
			{Flag: "credentials", File: true, Help: "`FILE` with user:password; - is standard input"},
			{Flag: "identity", Help: "`UID` of an identity of another Holdfast that trusts this one, instead of credentials"},
		},
		ByName: true,
		Columns: output.Columns("name", output.GroupOf("group", "uid"), "address", "path", "trigger", "state", "pending",
			"lastError"),
		Wide: output.Columns("uid", "repos", "tags", "signedOnly", "interval", "followDeletions", "hasCredentials",
			"identity", "failed", "oldestPendingTime", "successTime", "dueTime", "lastErrorTime",
			output.NameOf("set by", "setByUid"), "createTime", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{replicationRun, replicationStatus},
	}
}

// replicatedTags returns the Noun for the tags of a replication.
func replicatedTags() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "replications", One: "tag",
		Message: noun.MessageOf(&ocipb.ReplicationTag{}),
		Columns: output.Columns(output.PathOf("repo", "repoUid"), "tag", "since=queueTime", "next=dueTime", "error"),
		Wide:    output.Columns("copiedDigest"),
	}
}

func replicationRun(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run " + replications().Form, Short: "Copy all selected tags now",
		Long: "Queues all tags that the replication selects, and does not wait for the copies. With --dry-run it lists\n" +
			"the tags that would be copied: those that were not copied yet, or that have moved since.",
		Example: "  holdfast registry replications run acme/prod/partner --dry-run",
	}
	noun.AddDryRun(cmd)
	return a.About(replications(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		if dry, err := cmd.Flags().GetBool("dry-run"); err == nil && dry {
			return previewReplication(ctx, a, uid)
		}
		m, err := a.Write(ctx, cmd, replications().Method("Run"), (&ocipb.RunReplicationRequest{Uid: uid}).ProtoReflect(),
			map[string]string{"uid": "REPLICATION"})
		if err != nil {
			return err
		}
		return a.Show(ctx, replications().View(), m.Interface())
	})
}

// previewReplication prints the tags that a run would copy.
func previewReplication(ctx context.Context, a *noun.App, uid string) error {
	client := ocipb.NewReplicationsServiceClient(a)
	p, err := signin.Call(ctx, client.PreviewReplication, &ocipb.PreviewReplicationRequest{Uid: uid}, "uid=REPLICATION")
	if err != nil {
		return err
	}
	view := replicatedTags().View()
	view.Columns = output.Columns(output.PathOf("repo", "repoUid"), "tag", "copiedDigest")
	if err := noun.ShowAll(ctx, a, view, p.GetTags()); err != nil {
		return err
	}
	a.Note("%d of %d selected tags would be copied", len(p.GetTags()), p.GetExamined())
	if !p.GetComplete() {
		a.Note("not all selected tags were examined; more may be copied")
	}
	return nil
}

func replicationStatus(a *noun.App) *cobra.Command {
	var p noun.Paging
	cmd := &cobra.Command{
		Use: "status " + replications().Form, Short: "List the pending tags of a replication",
		Long:    "Lists the tags that are not copied yet, with the reason why the last attempt failed.",
		Example: "  holdfast registry replications status acme/prod/partner",
	}
	a.About(replications(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		return a.PrintAll(ctx, replicatedTags(), &ocipb.ListReplicationTagsRequest{Uid: uid}, p)
	})
	p.Register(cmd)
	return cmd
}
