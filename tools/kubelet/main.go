// Command kubelet-credentials runs the code with which the kubelet gets credentials for an image: it reads the
// configuration of the credential providers, runs them, and prints the credentials. A kubelet asks the API server for
// the service account of the pod and its token; here both come from the arguments and from the environment.
//
// Usage: TOKEN=… kubelet-credentials CONFIG FOLDER NAMESPACE SERVICEACCOUNT ANNOTATIONS IMAGE…
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/plugin"
)

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "usage: kubelet-credentials CONFIG FOLDER NAMESPACE SERVICEACCOUNT ANNOTATIONS IMAGE…")
		os.Exit(2)
	}
	if err := run(os.Args[1:6], os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A result contains the credentials of the kubelet for an image, and the audience of the tokens that it has requested.
type result struct {
	Image       string
	Credentials []credentialprovider.AuthConfig
	Audiences   []string
}

func run(args, images []string) error {
	config, folder, namespace, name := args[0], args[1], args[2], args[3]
	annotations := map[string]string{}
	if err := json.Unmarshal([]byte(args[4]), &annotations); err != nil {
		return err
	}
	audiences := []string{}
	token := func(_, _ string, q *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		audiences = append(audiences, q.Spec.Audiences...)
		q.Status = authenticationv1.TokenRequestStatus{
			Token: os.Getenv("TOKEN"), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		}
		return q, nil
	}
	account := func(namespace, name string) (*corev1.ServiceAccount, error) {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "9d2c6b9e-0000-0000-0000-000000000001", Annotations: annotations,
		}}, nil
	}
	if err := plugin.RegisterCredentialProviderPlugins(config, folder, token, account); err != nil {
		return err
	}
	keyring := plugin.NewExternalCredentialProviderDockerKeyring(namespace, "pod", "pod-uid", name)
	for _, image := range images {
		r := result{Image: image}
		found, _ := keyring.Lookup(image)
		for _, c := range found {
			r.Credentials = append(r.Credentials, c.AuthConfig)
		}
		r.Audiences = audiences
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return nil
}
