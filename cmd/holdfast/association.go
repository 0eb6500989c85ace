package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func accountAssociations() noun {
	bindings := serviceBindingsPath()
	return noun{
		use: "account-associations", one: "account association",
		about: "An account association says which accounts at other services belong to a group. A group has one at most,\n" +
			"and it goes by the group's name, path or uid.",
		example: "  holdfast iam account-associations create cloud --parent acme --amazon-account 123456789012",
		message: messageOf(&iampb.AccountAssociation{}),
		named:   groups, argument: "name",
		fields: []field{
			description("association"),
			{flag: "amazon-account", path: "amazon.account", help: "`ID` of the account at Amazon Web Services, twelve digits"},
			{flag: "google-project-id", path: "google.project_id", help: "`ID` of the project at Google Cloud"},
			{flag: "google-project-number", path: "google.project_number", help: "`NUMBER` of that project"},
			{flag: "azure-tenant-id", path: "azure.tenant_id", help: "`ID` of the tenant at Microsoft Azure"},
			{flag: "azure-client-id", path: "azure.client_ids", help: "an application in it and its id, `NAME=ID`; can be repeated"},
			{flag: "github", path: "github.app_installations", read: readInstallations, help: "an app's installation at GitHub, `APP:INSTALLATION[:NAME]`; can be repeated"},
			{flag: "service", path: bindings, ref: identities, key: principalName, help: "a service principal and the identity it acts as, `NAME=IDENTITY`; can be repeated"},
		},
		columns: columnsOf("name", "uid", "amazon=amazon.account", "google=google.projectId", "azure=azure.tenantId"),
		wide:    columnsOf("description", "createTime", "updateTime"),
		flagsOf: map[string]string{"account_association": "--amazon-account, --google-project-id, --azure-tenant-id, --github or --service", "service_bindings": "--service"},
		extra:   []func(*app) *cobra.Command{(*app).checkAssociation},
	}
}

// serviceBindingsPath leads to the bindings of service principals. The field
// that holds them has the name of another product in the API.
func serviceBindingsPath() string {
	holder := messageOf(&iampb.AccountAssociation{}).Fields().ByNumber(7)
	return string(holder.Name()) + ".service_bindings"
}

// principalName is how the server knows a service principal that people write
// like any other word.
func principalName(word string) string {
	return strings.ToUpper(strings.ReplaceAll(word, "-", "_"))
}

// readInstallations reads app:installation and an optional :name.
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

func (a *app) checkAssociation() *cobra.Command {
	provider := field{flag: "provider", path: "provider_type", help: "which `ACCOUNT` to try: google, amazon or azure"}
	cmd := &cobra.Command{Use: "check GROUP --provider ACCOUNT", Short: "Tell whether an account can be used, and why not"}
	a.about(groups(), cmd, func(ctx context.Context, cmd *cobra.Command, uid string) error {
		req := &iampb.CheckAccountAssociationRequest{Uid: uid}
		if _, err := provider.apply(ctx, a, cmd.Flags(), req.ProtoReflect(), provider.path); err != nil {
			return err
		}
		m, err := call(ctx, iampb.NewAccountAssociationsServiceClient(a).CheckAccountAssociation, req,
			map[string]string{"uid": "GROUP", "provider_type": "--provider"})
		if err != nil {
			return err
		}
		return a.show(view{plural: "checks", id: "status", columns: columnsOf("status", "reason", "message")}, m)
	})
	a.registerField(cmd, provider, messageOf(&iampb.CheckAccountAssociationRequest{}))
	return cmd
}
