// The parts of a browser that the code under test uses when it is loaded. Tests import this file first.
const storage = () => {
  const values = new Map<string, string>();
  return {
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => void values.set(name, value),
    removeItem: (name: string) => void values.delete(name),
  };
};

const start = "https://holdfast.example.com/console/repos?order=name&page=abc&selected=1";

Object.assign(globalThis, {
  location: new URL(start),
  history: { state: null, pushState() {}, replaceState() {} },
  localStorage: storage(),
  sessionStorage: storage(),
  scrollTo() {},
});
