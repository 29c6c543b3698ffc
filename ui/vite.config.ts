import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// `npm run dev` uses a running daemon: `squall serve --plain`, or SQUALL=http://host:port.
const daemon = process.env.SQUALL ?? "http://127.0.0.1:8443";

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: "es2022",
    // The page may load only its own files, and neither data: URLs nor inline scripts (see gui.rs).
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  server: {
    proxy: {
      "/squall": {
        target: daemon,
        ws: true,
        secure: false,
        // The daemon refuses other origins, and this proxy changes the origin.
        configure: (proxy) => {
          proxy.on("proxyReq", (request) => request.removeHeader("origin"));
          proxy.on("proxyReqWs", (request) => request.removeHeader("origin"));
        },
        changeOrigin: true,
      },
    },
  },
});
