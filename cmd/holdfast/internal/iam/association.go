package iam

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func accountAssociations() noun.Noun {
	bindings := serviceBindingsPath()
	return noun.Noun{
		Use: "account-associations", One: "account association",
		Short: "Connect groups to accounts at other platforms",
		About: "An account association connects a group with accounts at cloud providers and GitHub. A group has at most\n" +
			"one, which is identified by the name, path or uid of the group.",
		Example: "  holdfast iam account-associations create cloud --parent acme --amazon-account 123456789012",
		Message: noun.MessageOf(&iampb.AccountAssociation{}),
		Named:   noun.Groups, Argument: "name",
		Fields: []noun.Field{
			noun.Description("association"),
			{Flag: "amazon-account", Path: "amazon.account", Help: "`ID` of the Amazon Web Services account, twelve digits"},
			{Flag: "google-project-id", Path: "google.project_id", Help: "`ID` of the Google Cloud project"},
			{Flag: "google-project-number", Path: "google.project_number", Help: "`NUMBER` of the Google Cloud project"},
			{Flag: "azure-tenant-id", Path: "azure.tenant_id", Help: "`ID` of the Microsoft Azure tenant"},
			{Flag: "azure-client-id", Path: "azure.client_ids",
				Help: "name and client id of an Azure application, `NAME=ID`; can be repeated"},
			{Flag: "github", Path: "github.app_installations", Read: readInstallations,
				Help: "installation of a GitHub app, `APP:INSTALLATION[:NAME]`; can be repeated"},
			{Flag: "service", Path: bindings, Ref: Identities, Key: principalName,
				Help: "service principal and the identity it acts as, `NAME=IDENTITY`; can be repeated"},
		},
		ByName: true,
		Columns: output.Columns("name", output.PathOf("group", "uid"), "amazon=amazon.account",
			"google=google.projectId", "azure=azure.tenantId"),
		Wide: output.Columns("uid", "description", "createTime", "updateTime"),
		OtherFlags: map[string]string{"account_association": "--amazon-account, --google-project-id, --azure-tenant-id, " +
			"--github or --service", "service_bindings": "--service"},
		Extra: []func(*noun.App) *cobra.Command{checkAssociation},
	}
}

// serviceBindingsPath returns the path of the field that contains the bindings of service
// principals. In the API, this field has the name of another product.
func serviceBindingsPath() string {
	holder := noun.MessageOf(&iampb.AccountAssociation{}).Fields().ByNumber(7)
	return string(holder.Name()) + ".service_bindings"
}

// principalName returns the API's name of a service principal.
func principalName(word string) string {
	return strings.ToUpper(strings.ReplaceAll(word, "-", "_"))
}

// readInstallations parses APP:INSTALLATION, with an optional :NAME.
func readInstallations(m protoreflect.Message, texts []string) error {
	github, ok := m.Interface().(*iampb.AccountAssociation_GitHub)
	if !ok {
		return fmt.Errorf("cannot be set on %s", m.Descriptor().Name())
	}
	github.AppInstallations = map[int64]*iampb.AccountAssociation_GitHubAppInstallations{}
	for _, text := range texts {
		parts := append(strings.SplitN(text, ":", 3), "", "")
		app, err := strconv.ParseInt(parts[0], 10, 64)
		installation, err2 := strconv.ParseInt(parts[1], 10, 64)
		if err != nil || err2 != nil {
			return fmt.Errorf("%q is not of the form APP:INSTALLATION[:NAME], with numbers for the first two", text)
		}
		if github.AppInstallations[app] == nil {
			github.AppInstallations[app] = &iampb.AccountAssociation_GitHubAppInstallations{}
		}
		github.AppInstallations[app].Installations = append(github.AppInstallations[app].Installations,
			&iampb.AccountAssociation_GitHubInstallation{InstallationId: installation, Name: parts[2]})
	}
	return nil
}

func checkAssociation(a *noun.App) *cobra.Command {
	provider := []noun.Field{{Flag: "provider", Path: "provider_type",
		Help: "`ACCOUNT` to check: google, amazon or azure"}}
	cmd := &cobra.Command{Use: "check GROUP --provider ACCOUNT", Short: "Check whether an account can be used"}
	a.About(noun.Groups(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &iampb.CheckAccountAssociationRequest{Uid: uid}
		if err := a.Fill(ctx, cmd, provider, req); err != nil {
			return err
		}
		m, err := signin.Call(ctx, iampb.NewAccountAssociationsServiceClient(a).CheckAccountAssociation, req, "uid=GROUP",
			"provider_type=--provider")
		if err != nil {
			return err
		}
		columns := output.Columns("status", "reason", "message")
		return a.Show(ctx, output.View{Plural: "checks", ID: "status", Columns: columns}, m)
	})
	a.RegisterFields(cmd, provider, noun.MessageOf(&iampb.CheckAccountAssociationRequest{}))
	return cmd
}
