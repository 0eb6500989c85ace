package deploy_test

import (
	"bytes"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	builtin "k8s.io/client-go/kubernetes/scheme"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

const chartFolder = "helm/holdfast"

// examples returns the values files of the chart by their names.
func examples(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("helm/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		values, err := common.ReadValuesFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = values
	}
	return all
}

// render returns the documents that the chart of the server renders from values.
func render(t *testing.T, values map[string]any) ([][]byte, error) {
	t.Helper()
	return renderChart(t, chartFolder, values)
}

// renderChart returns the documents that the chart in a folder renders from values.
func renderChart(t *testing.T, folder string, values map[string]any) ([][]byte, error) {
	t.Helper()
	chart, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "holdfast", Namespace: "holdfast", IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, all)
	if err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		documents = append(documents, split(t, files[name])...)
	}
	return documents, nil
}

// split returns the documents of a YAML file that have content.
func split(t *testing.T, text string) (documents [][]byte) {
	t.Helper()
	for r := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text))); ; {
		buffer := make([]byte, len(text)+1)
		n, err := r.Read(buffer)
		if err == io.EOF {
			return documents
		}
		if err != nil {
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(buffer[:n], &content); err != nil {
			t.Fatalf("%v in\n%s", err, buffer[:n])
		}
		if content != nil {
			documents = append(documents, bytes.Clone(buffer[:n]))
		}
	}
}

// objects renders the chart of the server and decodes its objects.
func objects(t *testing.T, values map[string]any) []runtime.Object {
	t.Helper()
	documents, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, documents)
}

// decode decodes each document with the type of its API. A field that the type does not have fails the test.
func decode(t *testing.T, documents [][]byte) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{builtin.AddToScheme, gateway.Install, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for _, document := range documents {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, document)
			continue
		}
		all = append(all, object)
	}
	return all
}

// objectsOf returns the objects of a type.
func objectsOf[T any](all []runtime.Object) (matching []*T) {
	for _, object := range all {
		if typed, ok := object.(any).(*T); ok {
			matching = append(matching, typed)
		}
	}
	return matching
}

func TestChartLints(t *testing.T) {
	kube := &common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	for name, values := range examples(t) {
		t.Run(name, func(t *testing.T) {
			result := lint.RunAll(chartFolder, values, "holdfast", lint.WithKubeVersion(kube))
			for _, m := range result.Messages {
				if !strings.Contains(m.Error(), "icon is recommended") {
					t.Error(m)
				}
			}
		})
	}
}

// TestVersionsAgree checks that the chart, the compose file and the documentation for CI
// engineers name the same version.
func TestVersionsAgree(t *testing.T) {
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	version := chart.(*v2.Chart).Metadata.AppVersion
	if image := composeFile(t).Services["holdfast"].Image; !strings.HasSuffix(image, ":"+version) {
		t.Errorf("compose runs %s, and the chart version %s", image, version)
	}
	numbers := regexp.MustCompile(`\d+\.\d+\.\d+`)
	for _, number := range numbers.FindAllString(read(t, "../docs/workloads.md"), -1) {
		if number != version {
			t.Errorf("docs/workloads.md has the version %s, and the chart %s", number, version)
		}
	}
}

func TestChartRefuses(t *testing.T) {
	type values = map[string]any
	tests := map[string]struct {
		change values
		want   string
	}{
		"no address":                {values{"baseUrl": ""}, "baseUrl"},
		"an address with a path":    {values{"baseUrl": "https://example.com/holdfast"}, "baseUrl"},
		"a value it does not know":  {values{"replica": 3}, "replica"},
		"two replicas on SQLite":    {values{"database": values{"engine": "sqlite"}}, "/replicas"},
		"a secret among values":     {values{"encryptionKey": values{"value": "x"}}, "value"},
		"a secret among settings":   {values{"settings": values{"encryption_key": "x"}}, "encryption_key"},
		"a database among settings": {values{"settings": values{"database": "x"}}, "database"},
		"dev mode":                  {values{"settings": values{"dev": true}}, "dev"},
		"a collector without port":  {values{"traces": values{"endpoint": "http://collector"}}, "endpoint"},
		"a moving tag":              {values{"image": values{"tag": "latest"}}, "tag"},
		"blobs that are not shared": {values{"blobs": values{"bucket": ""}}, "several replicas need shared blobs"},
		"no Secret of the database": {values{"database": values{"existingSecret": ""}}, "database.existingSecret"},
		"no Secret of the key":      {values{"encryptionKey": values{"existingSecret": ""}}, "encryptionKey.existingSecret"},
		"autoscaling on SQLite": {values{
			"replicas": 1, "database": values{"engine": "sqlite"}, "autoscaling": values{"enabled": true},
		}, "/autoscaling/enabled"},
		"a gateway without a parent": {values{"gateway": values{"enabled": true, "parentRefs": []any{}}}, "parentRefs"},
		"one host in two routes": {values{"gateway": values{
			"grpcHostnames": []any{"registry.example.com"},
		}}, "serves gRPC as well"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, util.CoalesceTables(tt.change, examples(t)["postgres"]))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestChartRendersEverything checks that the examples use every template, so that the
// other tests cover all templates.
func TestChartRendersEverything(t *testing.T) {
	kinds := map[string]bool{}
	for _, values := range examples(t) {
		for _, object := range objects(t, values) {
			kinds[object.GetObjectKind().GroupVersionKind().Kind] = true
		}
	}
	want := []string{
		"Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy",
		"PersistentVolumeClaim", "PodDisruptionBudget", "Service", "ServiceAccount", "ServiceMonitor",
	}
	if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
		t.Errorf("kinds = %v, want %v", got, want)
	}
}

// TestDocumentedValues checks that the chart renders the first values in the
// documentation for operators.
func TestDocumentedValues(t *testing.T) {
	var values map[string]any
	readBlock(t, read(t, "../docs/kubernetes.md"), "# my-values.yaml", &values)
	if all := objects(t, values); len(all) < 6 {
		t.Errorf("%d objects", len(all))
	}
}
